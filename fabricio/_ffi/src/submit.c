/* The loop's calls: each fills one command and hands it to the worker. */
#include "engine.h"
#include "frame.h"
#include "peer.h"
#include "region.h"
#include "transfer.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

/* All endpoints live on one worker as long as there is one. */
#define WORKER 0u

static int submit(struct fab_engine *engine, uint32_t kind, uint32_t peer,
		  void *object)
{
	struct fab_command command = {
		.kind = kind,
		.peer = peer,
		.object = object,
	};

	return fab_engine_submit(engine, WORKER, &command);
}

/* Like submit, but frees the object that the worker did not get. */
static int submit_owned(struct fab_engine *engine, uint32_t kind, uint32_t peer,
			void *object)
{
	int ret;

	if (!object)
		return -FI_ENOMEM;
	ret = submit(engine, kind, peer, object);
	if (ret)
		free(object);
	return ret;
}

int fab_region_register(struct fab_engine *engine, uint64_t token,
			uint64_t address, uint64_t bytes, uint32_t access,
			uint64_t key, struct fab_region **region)
{
	uint32_t lanes = engine->options.lane_count;
	struct fab_region *made;
	int ret;

	if (!bytes)
		return -FI_EINVAL;
	made = calloc(1, sizeof(*made) + lanes * sizeof(made->lanes[0]));
	if (!made)
		return -FI_ENOMEM;
	made->token = token;
	made->address = address;
	made->bytes = bytes;
	made->access = access;
	made->key = key;
	made->lane_count = lanes;
	ret = submit_owned(engine, FAB_COMMAND_REGISTER, FAB_NO_PEER, made);
	if (!ret)
		*region = made;
	return ret;
}

int fab_region_deregister(struct fab_engine *engine, struct fab_region *region)
{
	return submit(engine, FAB_COMMAND_DEREGISTER, FAB_NO_PEER, region);
}

int fab_peer_add(struct fab_engine *engine, uint64_t token, uint64_t cookie,
		 const void *addresses, uint32_t address_bytes,
		 uint32_t lane_count)
{
	size_t bytes = (size_t) address_bytes * lane_count;
	struct fab_peer_spec *spec;

	if (!lane_count || !address_bytes)
		return -FI_EINVAL;
	spec = calloc(1, sizeof(*spec) + bytes);
	if (!spec)
		return -FI_ENOMEM;
	spec->token = token;
	spec->cookie = cookie;
	spec->address_bytes = address_bytes;
	spec->lane_count = lane_count;
	memcpy(spec->addresses, addresses, bytes);
	return submit_owned(engine, FAB_COMMAND_PEER_ADD, FAB_NO_PEER, spec);
}

int fab_peer_attach(struct fab_engine *engine, uint32_t peer,
		    uint32_t remote_peer, uint64_t remote_cookie)
{
	struct fab_command command = {
		.kind = FAB_COMMAND_PEER_ATTACH,
		.peer = peer,
		.number = remote_peer,
		.cookie = remote_cookie,
	};

	if (remote_peer > UINT16_MAX)
		return -FI_EINVAL;
	return fab_engine_submit(engine, WORKER, &command);
}

int fab_peer_remove(struct fab_engine *engine, uint32_t peer)
{
	return submit(engine, FAB_COMMAND_PEER_REMOVE, peer, NULL);
}

int fab_frame_send(struct fab_engine *engine, uint32_t peer, uint32_t kind,
		   uint64_t token, const void *head, uint32_t head_bytes,
		   const void *body, uint32_t body_bytes)
{
	const struct fab_worker *worker = &engine->workers[WORKER];
	struct fab_outgoing *frame;

	if (!worker->lane_count)
		return -FI_EOPBADSTATE;
	if ((uint64_t) head_bytes + body_bytes + sizeof(frame->header) >
	    worker->lanes[0].frame_stride)
		return -FI_EMSGSIZE;
	if (kind != FAB_FRAME_HELLO && kind != FAB_FRAME_MESSAGE)
		return -FI_EINVAL;
	frame = fab_outgoing_alloc(kind, token, head, head_bytes, body,
				   body_bytes);
	if (!frame)
		return -FI_ENOMEM;
	if (!engine->backlogs[WORKER].count &&
	    !fab_worker_express(&engine->workers[WORKER], peer, frame)) {
		fab_wakeup_rouse(&engine->workers[WORKER].sleeper);
		return 0;
	}
	return submit_owned(engine, FAB_COMMAND_FRAME, peer, frame);
}

static int64_t *copy_index(int64_t *to, const int64_t *from, uint64_t count,
			   const int64_t **index)
{
	*index = from ? memcpy(to, from, count * sizeof(*to)) : NULL;
	return from ? to + count : to;
}

int fab_transfer_start(struct fab_engine *engine, uint32_t peer, uint32_t flags,
		       uint64_t token, uint64_t sequence,
		       struct fab_region *region, uint64_t remote_base,
		       uint64_t remote_key, const struct fab_pages *pages,
		       struct fab_transfer **transfer)
{
	uint64_t lists = (pages->local_index ? 1u : 0u) +
			 (pages->remote_index ? 1u : 0u);
	struct fab_transfer *made;
	uint64_t bytes;
	int64_t *indices;
	int ret;

	if (__builtin_mul_overflow(pages->count, lists * sizeof(*indices),
				   &bytes) ||
	    __builtin_add_overflow(bytes, sizeof(*made), &bytes))
		return -FI_ENOMEM;
	made = malloc(bytes);
	if (!made)
		return -FI_ENOMEM;
	memset(made, 0, sizeof(*made));
	made->token = token;
	made->sequence = sequence;
	made->remote_base = remote_base;
	made->remote_key = remote_key;
	made->region = region;
	made->flags = flags;
	made->peer_slot = peer;
	made->pages = *pages;
	if (pages->page_bytes == 0)
		made->pages.count = 0;
	indices = (int64_t *) (void *) (made + 1);
	indices = copy_index(indices, pages->local_index, pages->count,
			     &made->pages.local_index);
	copy_index(indices, pages->remote_index, pages->count,
		   &made->pages.remote_index);
	ret = submit_owned(engine, FAB_COMMAND_TRANSFER, peer, made);
	if (!ret)
		*transfer = made;
	return ret;
}

int fab_transfer_cancel(struct fab_engine *engine,
			struct fab_transfer *transfer)
{
	return submit(engine, FAB_COMMAND_CANCEL, FAB_NO_PEER, transfer);
}

int fab_transfer_release(struct fab_engine *engine,
			 struct fab_transfer *transfer)
{
	return submit(engine, FAB_COMMAND_RELEASE, FAB_NO_PEER, transfer);
}

uint64_t fab_transfer_bytes_done(const struct fab_transfer *transfer)
{
	return atomic_load_explicit(&transfer->bytes_done,
				    memory_order_relaxed);
}

uint64_t fab_transfer_pages_done(const struct fab_transfer *transfer)
{
	return atomic_load_explicit(&transfer->pages_done,
				    memory_order_relaxed);
}
