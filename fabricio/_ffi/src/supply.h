/* Where the parts of a transfer take their pages from, a chunk at a time, so
 * that whoever drains faster moves more.
 *
 * S1 each byte of each page is in exactly one chunk.
 * S2 chunks are taken in order, by whoever comes first. */
#ifndef FAB_SUPPLY_H
#define FAB_SUPPLY_H

#include "pages.h"

#include <stdatomic.h>

struct fab_supply {
	/* Constant once parts have it. */
	struct fab_pages pages;
	uint64_t unit_bytes; /* what is never cut: a page, or a piece of one */
	uint64_t units_per_page;
	uint64_t unit_count;
	uint64_t chunk_units;
	_Atomic uint64_t next; /* unit; workers add */
};

/* Cut for so many parts; pieces are of stripe_bytes. One part takes all at
 * once. [loop] */
void fab_supply_construct(struct fab_supply *supply,
			  const struct fab_pages *pages, uint32_t parts,
			  uint64_t stripe_bytes);

/* Take the next chunk. 0 if there is none left. [worker] */
int fab_supply_take(struct fab_supply *supply, uint64_t *chunk);
/* What is in it: [cursor, end). [worker] */
void fab_supply_seek(const struct fab_supply *supply, uint64_t chunk,
		     struct fab_cursor *cursor, struct fab_cursor *end);

#endif
