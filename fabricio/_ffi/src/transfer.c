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

/* Whether the path is there, and both regions are registered at its ends. */
static int transfer_fits(const struct fab_engine *engine,
			 const struct fab_route *route,
			 const struct fab_region *region, uint64_t remote,
			 uint32_t path)
{
	return !(route->down >> path & 1) &&
	       (region->workers >> fab_route_worker(engine, path) & 1) &&
	       (remote >> path % route->worker_count & 1);
}

/* As many paths as the bytes are worth, beginning with another one each time. */
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

		if (!transfer_fits(engine, route, region, remote, path))
			continue;
		choice->paths[choice->count++] = path;
		if (choice->count >= worth)
			break;
	}
	if (!choice->count)
		return route->down ? -FI_EHOSTUNREACH : -FI_EINVAL;
	route->turn =
		(choice->paths[choice->count - 1] + 1) % route->path_count;
	return 0;
}

static struct fab_part *part_alloc(const struct fab_engine *engine,
				   const struct fab_route *route,
				   struct fab_transfer *transfer,
				   uint32_t index, uint32_t path)
{
	const struct fab_remote *remote = &transfer->remote;
	uint32_t worker = fab_route_worker(engine, path);
	uint32_t lanes = engine->workers[worker].plan.lane_count;
	struct fab_part *made;

	made = calloc(1, sizeof(*made) + lanes * sizeof(made->remote_keys[0]));
	if (!made)
		return NULL;
	made->token = (uint64_t) (uintptr_t) transfer;
	made->sequence = transfer->sequence;
	made->flags = transfer->flags;
	made->part_count = transfer->part_count;
	made->index = index;
	made->empty = !transfer->supply.pages.count;
	made->remote_base = remote->base;
	made->supply = &transfer->supply;
	made->registration = transfer->region->parts[worker];
	made->peer_slot = route->paths[path].slot;
	for (uint32_t i = 0; i < lanes; i++)
		made->remote_keys[i] =
			remote->keys[remote->key_count == 1 ?
					     0 :
					     fab_route_lane(route, path, i)];
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
					   const struct fab_remote *remote,
					   uint32_t parts)
{
	uint64_t lists = (pages->local_index ? 1u : 0u) +
			 (pages->remote_index ? 1u : 0u);
	struct fab_pages mine = *pages;
	struct fab_transfer *made;
	uint64_t bytes, fixed;
	uint64_t *keys;
	int64_t *indices;

	fixed = sizeof(*made) + parts * sizeof(made->parts[0]) +
		remote->key_count * sizeof(*keys);
	if (__builtin_mul_overflow(pages->count, lists * sizeof(*indices),
				   &bytes) ||
	    __builtin_add_overflow(bytes, fixed, &bytes))
		return NULL;
	made = malloc(bytes);
	if (!made)
		return NULL;
	memset(made, 0, sizeof(*made) + parts * sizeof(made->parts[0]));
	keys = (uint64_t *) (void *) (made->parts + parts);
	made->remote = *remote;
	made->remote.keys =
		memcpy(keys, remote->keys, remote->key_count * sizeof(*keys));
	indices = (int64_t *) (void *) (keys + remote->key_count);
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
	int ret;

	if (!route ||
	    (remote->key_count != 1 && remote->key_count != route->lane_total))
		return -FI_EINVAL;
	ret = transfer_choose(engine, route, region, remote->workers, pages,
			      &choice);
	if (ret)
		return ret;
	made = transfer_alloc(engine, pages, remote, choice.count);
	if (!made)
		return -FI_ENOMEM;
	made->token = token;
	made->sequence = sequence;
	made->region = region;
	made->route = peer;
	made->flags = flags;
	for (i = 0; i < choice.count; i++) {
		uint32_t path = choice.paths[i];

		made->parts[i].path = path;
		made->parts[i].worker = fab_route_worker(engine, path);
		made->parts[i].part = part_alloc(engine, route, made, i, path);
		if (!made->parts[i].part)
			goto failed;
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
	transfer->cancelled = 1;
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

/* A path for what is left of a part. Where nothing can be done but to tell the
 * peer of the failure, any that works. 0, or -FI_EHOSTUNREACH. */
static int transfer_redirect(const struct fab_engine *engine,
			     struct fab_route *route,
			     const struct fab_transfer *transfer, int doomed,
			     uint32_t *path)
{
	for (uint32_t i = 0; i < route->path_count; i++) {
		*path = route->turn++ % route->path_count;
		if (doomed ? !(route->down >> *path & 1) :
			     transfer_fits(engine, route, transfer->region,
					   transfer->remote.workers, *path))
			return 0;
	}
	return -FI_EHOSTUNREACH;
}

static void part_take_chunks(struct fab_part *to, struct fab_part *from)
{
	to->chunks = from->chunks;
	to->chunk_count = from->chunk_count;
	to->chunk_capacity = from->chunk_capacity;
	from->chunks = NULL;
	from->chunk_count = from->chunk_capacity = 0;
	/* If all had arrived, all of it was posted. */
	to->lost_bytes =
		from->lost_bytes +
		atomic_load_explicit(&from->bytes_done, memory_order_relaxed);
	to->lost_pages = from->lost_pages +
			 (uint32_t) atomic_load_explicit(&from->pages_done,
							 memory_order_relaxed);
}

static void part_doom(struct fab_part *part,
		      const struct fab_completion *completion)
{
	part->registration = NULL;
	part->uncounted = 1;
	fab_error_set(&part->error, completion->status, "", 0, NULL);
	if (completion->error)
		part->error = *completion->error;
}

/* Y3. 1 if another part has taken this one's place. */
static int transfer_replace(struct fab_engine *engine,
			    struct fab_transfer *transfer,
			    const struct fab_completion *completion)
{
	struct fab_route *route =
		fab_route_find(&engine->routes, transfer->route);
	struct fab_transfer_part *place = &transfer->parts[completion->bytes];
	struct fab_part *old = place->part, *made;
	int notify = !!(transfer->flags & FAB_TRANSFER_NOTIFY);
	int doomed = completion->severed == FAB_PART_FAILED_BEFORE ||
		     !completion->quiet || !old->keeps || transfer->status ||
		     transfer->cancelled || transfer->region->closing;
	uint32_t path;

	if (!route || route->removing || route->failed)
		return 0;
	if (!doomed && transfer_redirect(engine, route, transfer, 0, &path))
		doomed = 1;
	if (doomed &&
	    (!notify || transfer_redirect(engine, route, transfer, 1, &path)))
		return 0;
	made = part_alloc(engine, route, transfer, (uint32_t) completion->bytes,
			  path);
	if (!made ||
	    fab_engine_reserve(engine,
			       1ull << place->worker |
				       1ull << fab_route_worker(engine, path),
			       2)) {
		free(made);
		return 0;
	}
	made->moved = notify && old->told;
	made->from_path = place->path;
	made->from_immediate = old->immediate;
	if (doomed)
		part_doom(made, completion);
	else
		part_take_chunks(made, old);
	transfer->unquiet += !completion->quiet;
	fab_engine_command(engine, place->worker, FAB_COMMAND_RELEASE,
			   FAB_NO_PEER, old);
	place->part = made;
	place->path = path;
	place->worker = fab_route_worker(engine, path);
	fab_engine_command(engine, place->worker, FAB_COMMAND_TRANSFER,
			   FAB_NO_PEER, made);
	return 1;
}

/* The path failed before the worker heard that it was cancelled: it was. */
static void transfer_call_it_cancelled(struct fab_completion *completion)
{
	completion->status = -FI_ECANCELED;
	if (completion->error)
		fab_error_set(completion->error, completion->status, "cancel",
			      0, NULL);
}

static int transfer_done(struct fab_engine *engine,
			 struct fab_transfer *transfer,
			 struct fab_completion *completion)
{
	int32_t status;

	if (completion->severed == FAB_PART_FAULTLESS && transfer->cancelled)
		transfer_call_it_cancelled(completion);
	status = completion->status;
	if (completion->severed &&
	    transfer_replace(engine, transfer, completion)) {
		free(completion->error);
		return 0;
	}
	completion->bytes = completion->severed = 0;
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
