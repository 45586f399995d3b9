#include "supply.h"

#include <string.h>

/* Chunks a part takes at least, if there is enough: what the last one leaves
 * the others to wait for is a fraction of that. */
#define TURNS 8u

void fab_supply_construct(struct fab_supply *supply,
			  const struct fab_pages *pages, uint32_t parts,
			  uint64_t stripe_bytes)
{
	uint64_t most;

	memset(supply, 0, sizeof(*supply));
	supply->pages = *pages;
	supply->unit_bytes = pages->page_bytes;
	supply->units_per_page = 1;
	supply->unit_count = supply->chunk_units = pages->count;
	if (parts < 2 || !pages->page_bytes)
		return;
	if (supply->unit_bytes > stripe_bytes) {
		supply->unit_bytes = stripe_bytes;
		supply->units_per_page =
			(pages->page_bytes - 1) / stripe_bytes + 1;
		supply->unit_count *= supply->units_per_page;
	}
	most = supply->unit_count / (TURNS * (uint64_t) parts);
	supply->chunk_units = stripe_bytes / supply->unit_bytes;
	if (supply->chunk_units > most)
		supply->chunk_units = most;
	if (!supply->chunk_units)
		supply->chunk_units = 1;
}

static void supply_place(const struct fab_supply *supply, uint64_t unit,
			 struct fab_cursor *cursor)
{
	cursor->page = unit / supply->units_per_page;
	cursor->offset = unit % supply->units_per_page * supply->unit_bytes;
}

int fab_supply_take(struct fab_supply *supply, uint64_t *chunk)
{
	*chunk = atomic_fetch_add_explicit(&supply->next, supply->chunk_units,
					   memory_order_relaxed);
	return *chunk < supply->unit_count;
}

void fab_supply_seek(const struct fab_supply *supply, uint64_t chunk,
		     struct fab_cursor *cursor, struct fab_cursor *end)
{
	uint64_t last = chunk + supply->chunk_units;

	if (last > supply->unit_count)
		last = supply->unit_count;
	supply_place(supply, chunk, cursor);
	supply_place(supply, last, end);
}
