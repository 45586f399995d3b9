#include "transfer.h"

#include "engine.h"
#include "part.h"
#include "region.h"
#include "route.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

/* Paths that the transfer takes, and where each leads. */
struct choice {
	uint32_t count;
	uint32_t paths[FAB_MAX_WORKERS];
};

static int transfer_bytes(const struct fab_pages *pages, uint64_t *bytes)
{
	return __builtin_mul_overflow(pages->count, pages->page_bytes, bytes);
}

/* As many paths as the bytes are worth, beginning with another one each time.
 * Both regions must be registered at its ends. */
static int transfer_choose(const struct fab_engine *engine,
			   struct fab_route *route,
			   const struct fab_region *region, uint64_t remote,
			   const struct fab_pages *pages, struct choice *choice)
{
	uint64_t bytes, worth;

	if (transfer_bytes(pages, &bytes))
		bytes = UINT64_MAX;
	worth = bytes / engine->options.stripe_bytes;
	choice->count = 0;
	for (uint32_t i = 0; i < route->path_count; i++) {
		uint32_t path = (route->turn + i) % route->path_count;
		uint32_t here = path % engine->worker_count;
		uint32_t there = path % route->worker_count;

		if (!(region->workers >> here & 1) || !(remote >> there & 1))
			continue;
		choice->paths[choice->count++] = path;
		if (choice->count >= worth)
			break;
	}
	if (!choice->count)
		return -FI_EINVAL;
	route->turn =
		(choice->paths[choice->count - 1] + 1) % route->path_count;
	return 0;
}

static struct fab_part *part_alloc(struct fab_engine *engine,
				   struct fab_route *route,
				   const struct fab_remote *remote,
				   struct fab_transfer *transfer,
				   struct fab_region *region, uint32_t path)
{
	uint32_t worker = path % engine->worker_count;
	uint32_t there = path % route->worker_count;
	uint32_t lanes = engine->workers[worker].plan.lane_count;
	struct fab_part *made;

	made = calloc(1, sizeof(*made) + lanes * sizeof(made->remote_keys[0]));
	if (!made)
		return NULL;
	made->token = (uint64_t) (uintptr_t) transfer;
	made->remote_base = remote->base;
	made->supply = &transfer->supply;
	made->registration = region->parts[worker];
	made->peer_slot = route->paths[path].slot;
	for (uint32_t i = 0; i < lanes; i++) {
		uint32_t lane = i % route->lane_counts[there];

		made->remote_keys[i] =
			remote->key_count == 1 ?
				remote->keys[0] :
				remote->keys[route->first_lanes[there] + lane];
	}
	return made;
}

static int64_t *copy_index(int64_t *to, const int64_t *from, uint64_t count,
			   const int64_t **index)
{
	*index = from ? memcpy(to, from, count * sizeof(*to)) : NULL;
	return from ? to + count : to;
}

static struct fab_transfer *transfer_alloc(const struct fab_engine *engine,
					   const struct fab_pages *pages,
					   uint32_t parts)
{
	uint64_t lists = (pages->local_index ? 1u : 0u) +
			 (pages->remote_index ? 1u : 0u);
	struct fab_pages mine = *pages;
	struct fab_transfer *made;
	uint64_t bytes;
	int64_t *indices;

	if (__builtin_mul_overflow(pages->count, lists * sizeof(*indices),
				   &bytes) ||
	    __builtin_add_overflow(
		    bytes, sizeof(*made) + parts * sizeof(made->parts[0]),
		    &bytes))
		return NULL;
	made = malloc(bytes);
	if (!made)
		return NULL;
	memset(made, 0, sizeof(*made) + parts * sizeof(made->parts[0]));
	indices = (int64_t *) (void *) (made->parts + parts);
	indices = copy_index(indices, pages->local_index, pages->count,
			     &mine.local_index);
	copy_index(indices, pages->remote_index, pages->count,
		   &mine.remote_index);
	if (mine.page_bytes == 0)
		mine.count = 0;
	fab_supply_construct(&made->supply, &mine, parts,
			     engine->options.stripe_bytes);
	made->undone = made->unquiet = made->part_count = parts;
	return made;
}

static void transfer_free(struct fab_transfer *transfer)
{
	if (fab_link_listed(&transfer->link))
		fab_list_remove(&transfer->link);
	free(transfer->error);
	free(transfer);
}

static uint64_t transfer_workers(const struct fab_transfer *transfer)
{
	uint64_t workers = 0;

	for (uint32_t i = 0; i < transfer->part_count; i++)
		workers |= 1ull << transfer->parts[i].worker;
	return workers;
}

/* One command for each part; reserved before. */
static void transfer_command(struct fab_engine *engine,
			     const struct fab_transfer *transfer, uint32_t kind)
{
	for (uint32_t i = 0; i < transfer->part_count; i++)
		fab_engine_command(engine, transfer->parts[i].worker, kind,
				   FAB_NO_PEER, transfer->parts[i].part);
}

static int transfer_reserve(struct fab_engine *engine,
			    const struct fab_transfer *transfer)
{
	return fab_engine_reserve(engine, transfer_workers(transfer),
				  transfer->part_count);
}

int fab_transfer_start(struct fab_engine *engine, uint32_t peer, uint32_t flags,
		       uint64_t token, uint64_t sequence,
		       struct fab_region *region,
		       const struct fab_remote *remote,
		       const struct fab_pages *pages,
		       struct fab_transfer **transfer)
{
	struct fab_route *route = fab_route_find(&engine->routes, peer);
	struct fab_transfer *made;
	struct choice choice;
	uint32_t i;

	if (!route ||
	    (remote->key_count != 1 &&
	     remote->key_count != route->lane_total) ||
	    transfer_choose(engine, route, region, remote->workers, pages,
			    &choice))
		return -FI_EINVAL;
	made = transfer_alloc(engine, pages, choice.count);
	if (!made)
		return -FI_ENOMEM;
	made->token = token;
	for (i = 0; i < choice.count; i++) {
		struct fab_part *part = part_alloc(engine, route, remote, made,
						   region, choice.paths[i]);

		made->parts[i].worker = choice.paths[i] % engine->worker_count;
		made->parts[i].part = part;
		if (!part)
			goto failed;
		part->sequence = sequence;
		part->flags = flags;
		part->part_count = choice.count;
	}
	if (transfer_reserve(engine, made))
		goto failed;
	transfer_command(engine, made, FAB_COMMAND_TRANSFER);
	fab_list_append(&engine->transfers, &made->link);
	*transfer = made;
	return 0;
failed:
	for (i = 0; i < choice.count; i++)
		free(made->parts[i].part);
	transfer_free(made);
	return -FI_ENOMEM;
}

int fab_transfer_cancel(struct fab_engine *engine,
			struct fab_transfer *transfer)
{
	if (transfer_reserve(engine, transfer))
		return -FI_ENOMEM;
	transfer_command(engine, transfer, FAB_COMMAND_CANCEL);
	return 0;
}

int fab_transfer_release(struct fab_engine *engine,
			 struct fab_transfer *transfer)
{
	if (transfer_reserve(engine, transfer))
		return -FI_ENOMEM;
	transfer_command(engine, transfer, FAB_COMMAND_RELEASE);
	transfer_free(transfer);
	return 0;
}

uint64_t fab_transfer_bytes_done(const struct fab_transfer *transfer)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < transfer->part_count; i++)
		bytes += atomic_load_explicit(
			&transfer->parts[i].part->bytes_done,
			memory_order_relaxed);
	return bytes;
}

uint64_t fab_transfer_pages_done(const struct fab_transfer *transfer)
{
	uint64_t pages = 0;

	for (uint32_t i = 0; i < transfer->part_count; i++)
		pages += atomic_load_explicit(
			&transfer->parts[i].part->pages_done,
			memory_order_relaxed);
	return pages;
}

static int transfer_done(struct fab_engine *engine,
			 struct fab_transfer *transfer,
			 struct fab_completion *completion)
{
	int32_t status = completion->status;

	transfer->counted += completion->count;
	fab_error_keep_first(&transfer->error, completion);
	if (completion->quiet)
		transfer->unquiet--;
	transfer->undone--;
	if (status && !transfer->status) {
		transfer->status = status;
		/* Without memory for it, the others end by themselves. */
		if (transfer->undone)
			(void) fab_transfer_cancel(engine, transfer);
	}
	if (transfer->undone)
		return 0;
	completion->token = transfer->token;
	completion->status = transfer->status;
	completion->count = transfer->counted;
	completion->quiet = !transfer->unquiet;
	completion->error = transfer->error;
	transfer->error = NULL;
	return 1;
}

int fab_transfer_gather(struct fab_engine *engine,
			struct fab_completion *completion)
{
	struct fab_transfer *transfer =
		(struct fab_transfer *) (uintptr_t) completion->token;

	if (completion->kind == FAB_TRANSFER_DONE)
		return transfer_done(engine, transfer, completion);
	completion->token = transfer->token;
	return --transfer->unquiet == 0 && !transfer->undone;
}

void fab_transfer_free_list(struct fab_link *list)
{
	while (!fab_list_empty(list))
		transfer_free(FAB_ENTRY(list->next, struct fab_transfer, link));
}
