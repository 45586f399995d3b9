/* Page lists: checks before the first post, and expansion into segments. */
#ifndef FAB_PAGES_H
#define FAB_PAGES_H

#include "fabricio.h"

/* Where expansion stands: the page, and the bytes of it already taken. */
struct fab_cursor {
	uint64_t page;
	uint64_t offset;
};

struct fab_segment {
	uint64_t local;  /* offset into the local side */
	uint64_t remote; /* offset into the remote side */
	uint64_t bytes;
	uint32_t pages_ended;
};

/* Take the next run of at most `limit` bytes that is contiguous on both sides.
 * With `merge`, pages adjacent on both sides run into one segment.
 * Needs cursor->page < pages->count and limit > 0. */
void fab_pages_next(const struct fab_pages *pages, struct fab_cursor *cursor,
		    uint64_t limit, int merge, struct fab_segment *segment);

#endif
