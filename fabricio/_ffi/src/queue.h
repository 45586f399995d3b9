/* Growable first-in first-out queue of fixed-size items; one thread only. It
 * takes what a full ring cannot, so that nothing is ever dropped. */
#ifndef FAB_QUEUE_H
#define FAB_QUEUE_H

#include <rdma/fi_errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct fab_queue {
	unsigned char *items; /* owned, circular */
	size_t item_bytes;
	size_t capacity;
	size_t first;
	size_t count;
};

static inline void fab_queue_construct(struct fab_queue *queue,
				       size_t item_bytes)
{
	memset(queue, 0, sizeof(*queue));
	queue->item_bytes = item_bytes;
}

static inline void fab_queue_destruct(struct fab_queue *queue)
{
	free(queue->items);
	queue->items = NULL;
	queue->count = queue->capacity = 0;
}

static inline void *fab_queue_at(struct fab_queue *queue, size_t i)
{
	return queue->items +
	       (queue->first + i) % queue->capacity * queue->item_bytes;
}

/* Make room for `more` items, so that as many pushes succeed. */
static inline int fab_queue_reserve(struct fab_queue *queue, size_t more)
{
	size_t capacity = queue->capacity ? queue->capacity : 64;
	unsigned char *items;

	if (queue->count + more <= queue->capacity)
		return 0;
	while (capacity < queue->count + more)
		capacity *= 2;
	items = malloc(capacity * queue->item_bytes);
	if (!items)
		return -FI_ENOMEM;
	for (size_t i = 0; i < queue->count; i++)
		memcpy(items + i * queue->item_bytes, fab_queue_at(queue, i),
		       queue->item_bytes);
	free(queue->items);
	queue->items = items;
	queue->capacity = capacity;
	queue->first = 0;
	return 0;
}

static inline int fab_queue_push(struct fab_queue *queue, const void *item)
{
	if (fab_queue_reserve(queue, 1))
		return -FI_ENOMEM;
	queue->count++;
	memcpy(fab_queue_at(queue, queue->count - 1), item, queue->item_bytes);
	return 0;
}

/* The oldest item, borrowed until the next push or drop; NULL if empty. */
static inline void *fab_queue_first(struct fab_queue *queue)
{
	return queue->count ? fab_queue_at(queue, 0) : NULL;
}

static inline void fab_queue_drop(struct fab_queue *queue)
{
	queue->first = (queue->first + 1) % queue->capacity;
	queue->count--;
}

#endif
