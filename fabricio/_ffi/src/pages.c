#include "pages.h"

#include <stdlib.h>
#include <string.h>

static inline uint64_t page_index(const int64_t *index, uint64_t i)
{
	return index ? (uint64_t) index[i] : i;
}

void fab_pages_next(const struct fab_pages *pages, struct fab_cursor *cursor,
		    const struct fab_cursor *end, uint64_t limit, int merge,
		    struct fab_segment *segment)
{
	uint64_t i = cursor->page;
	uint64_t stop = i == end->page ? end->offset : pages->page_bytes;
	uint64_t bytes = stop - cursor->offset;
	uint64_t local =
		pages->local_offset + cursor->offset +
		page_index(pages->local_index, i) * pages->local_stride;
	uint64_t remote =
		pages->remote_offset + cursor->offset +
		page_index(pages->remote_index, i) * pages->remote_stride;

	segment->local = local;
	segment->remote = remote;
	segment->pages_ended = 0;
	if (bytes > limit) {
		segment->bytes = limit;
		cursor->offset += limit;
		return;
	}
	if (stop < pages->page_bytes) {
		segment->bytes = bytes;
		cursor->offset = stop;
		return;
	}
	cursor->offset = 0;
	segment->pages_ended = 1;
	for (i++; merge && i < end->page; i++) {
		if (pages->page_bytes > limit - bytes ||
		    segment->pages_ended == UINT32_MAX)
			break;
		if (pages->local_offset + page_index(pages->local_index, i) *
						  pages->local_stride !=
			    local + bytes ||
		    pages->remote_offset + page_index(pages->remote_index, i) *
						   pages->remote_stride !=
			    remote + bytes)
			break;
		bytes += pages->page_bytes;
		segment->pages_ended++;
	}
	segment->bytes = bytes;
	cursor->page = i;
}

/* One side's range. An index is good iff, seen as unsigned, it is at most the
 * last page that fits; negative ones are huge. Returns 0 or -1. */
static int check_side(const int64_t *index, uint64_t count, uint64_t offset,
		      uint64_t stride, uint64_t page_bytes, uint64_t bytes,
		      uint64_t *position)
{
	uint64_t last;

	*position = 0;
	if (offset > bytes || page_bytes > bytes - offset)
		return -1;
	/* Without a stride every page is the first one, whatever its index,
	 * as long as that is a page number at all. */
	last = stride ? (bytes - offset - page_bytes) / stride :
			(uint64_t) INT64_MAX;
	/* So that negative indices are past it, however long the side. */
	if (last > (uint64_t) INT64_MAX)
		last = (uint64_t) INT64_MAX;
	if (!index) {
		*position = last + 1;
		return count - 1 > last ? -1 : 0;
	}
	for (uint64_t i = 0; i < count; i++) {
		if ((uint64_t) index[i] > last) {
			*position = i;
			return -1;
		}
	}
	return 0;
}

static int place_of_twin(const int64_t *index, uint64_t position,
			 uint64_t *first)
{
	for (uint64_t i = 0; i < position; i++) {
		if (index[i] == index[position]) {
			*first = i;
			return FAB_PAGES_DUPLICATE;
		}
	}
	return FAB_PAGES_OK;
}

/* Few pages in a wide range: open addressing, half full. */
static int check_unique_hashed(const int64_t *index, uint64_t count,
			       uint64_t *position, uint64_t *first)
{
	int ret = FAB_PAGES_OK;
	uint32_t bits = 4;
	uint64_t *table;

	while ((1ull << bits) < count * 2)
		bits++;
	table = calloc(1ull << bits, sizeof(*table));
	if (!table)
		return FAB_PAGES_NO_MEMORY;
	for (uint64_t i = 0; i < count && !ret; i++) {
		/* +1: zero means empty; indices stay below 2^63. */
		uint64_t key = (uint64_t) index[i] + 1;
		uint64_t at = (key * 0x9e3779b97f4a7c15ull) >> (64 - bits);

		while (table[at] && table[at] != key)
			at = (at + 1) & ((1ull << bits) - 1);
		if (table[at]) {
			*position = i;
			ret = place_of_twin(index, i, first);
		}
		table[at] = key;
	}
	free(table);
	return ret;
}

/* Indices were range-checked: none is negative. */
static int check_unique(const int64_t *index, uint64_t count,
			uint64_t *position, uint64_t *first)
{
	int64_t low = index[0], high = index[0];
	int ascending = 1, ret = FAB_PAGES_OK;
	uint64_t words, *map;

	for (uint64_t i = 1; i < count; i++) {
		ascending &= index[i] > index[i - 1];
		low = index[i] < low ? index[i] : low;
		high = index[i] > high ? index[i] : high;
	}
	if (ascending)
		return FAB_PAGES_OK;
	words = (uint64_t) (high - low) / 64 + 1;
	if (words > 1024 && words > count)
		return check_unique_hashed(index, count, position, first);
	map = calloc(words, sizeof(*map));
	if (!map)
		return FAB_PAGES_NO_MEMORY;
	for (uint64_t i = 0; i < count && !ret; i++) {
		uint64_t bit = (uint64_t) (index[i] - low);

		if (map[bit / 64] >> (bit % 64) & 1) {
			*position = i;
			ret = place_of_twin(index, i, first);
		}
		map[bit / 64] |= 1ull << (bit % 64);
	}
	free(map);
	return ret;
}

int fab_pages_check(const struct fab_pages *pages, int read, uint64_t *position,
		    uint64_t *first)
{
	const int64_t *destination =
		read ? pages->local_index : pages->remote_index;
	uint64_t stride = read ? pages->local_stride : pages->remote_stride;

	*position = *first = 0;
	if (pages->count == 0 || pages->page_bytes == 0)
		return FAB_PAGES_OK;
	if (check_side(pages->local_index, pages->count, pages->local_offset,
		       pages->local_stride, pages->page_bytes,
		       pages->local_bytes, position))
		return FAB_PAGES_LOCAL_RANGE;
	if (check_side(pages->remote_index, pages->count, pages->remote_offset,
		       pages->remote_stride, pages->page_bytes,
		       pages->remote_bytes, position))
		return FAB_PAGES_REMOTE_RANGE;
	*position = 0;
	if (pages->count > 1 && stride < pages->page_bytes)
		return FAB_PAGES_STRIDE;
	if (!destination)
		return FAB_PAGES_OK;
	return check_unique(destination, pages->count, position, first);
}
