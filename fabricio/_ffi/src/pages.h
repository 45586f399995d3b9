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

static inline int fab_cursor_before(const struct fab_cursor *cursor,
				    const struct fab_cursor *end)
{
	return cursor->page < end->page ||
	       (cursor->page == end->page && cursor->offset < end->offset);
}

/* Take the next run of at most `limit` bytes before `end` that is contiguous on
 * both sides. With `merge`, pages adjacent on both sides run into one segment.
 * Needs fab_cursor_before(cursor, end) and limit > 0. */
void fab_pages_next(const struct fab_pages *pages, struct fab_cursor *cursor,
		    const struct fab_cursor *end, uint64_t limit, int merge,
		    struct fab_segment *segment);

#endif
