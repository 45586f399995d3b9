#include "region.h"

#include "engine.h"
#include "registration.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>

static struct fab_registration *
registration_alloc(const struct fab_engine *engine, uint32_t worker,
		   const struct fab_registration *like)
{
	uint32_t lanes = engine->workers[worker].plan.lane_count;
	struct fab_registration *made;

	made = calloc(1, sizeof(*made) + lanes * sizeof(made->lanes[0]));
	if (!made)
		return NULL;
	*made = *like;
	made->lane_count = lanes;
	return made;
}

static void region_free(struct fab_region *region)
{
	if (fab_link_listed(&region->link))
		fab_list_remove(&region->link);
	free(region->error);
	free(region);
}

int fab_region_register(struct fab_engine *engine, uint64_t token,
			uint64_t address, uint64_t bytes, uint32_t access,
			uint64_t key, uint64_t workers,
			struct fab_region **region)
{
	struct fab_registration like = {
		.address = address,
		.bytes = bytes,
		.access = access,
		.key = key,
	};
	struct fab_region *made;
	uint32_t i;

	if (engine->worker_count < FAB_MAX_WORKERS)
		workers &= (1ull << engine->worker_count) - 1;
	if (!bytes || !workers)
		return -FI_EINVAL;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -FI_ENOMEM;
	made->token = token;
	made->workers = workers;
	like.token = (uint64_t) (uintptr_t) made;
	for (i = 0; i < engine->worker_count; i++) {
		if (!(workers >> i & 1))
			continue;
		made->parts[i] = registration_alloc(engine, i, &like);
		if (!made->parts[i])
			goto failed;
		made->opening++;
	}
	if (fab_engine_reserve(engine, workers, 1))
		goto failed;
	for (i = 0; i < engine->worker_count; i++) {
		if (made->parts[i])
			fab_engine_command(engine, i, FAB_COMMAND_REGISTER,
					   FAB_NO_PEER, made->parts[i]);
	}
	fab_list_append(&engine->regions, &made->link);
	*region = made;
	return 0;
failed:
	for (i = 0; i < engine->worker_count; i++)
		free(made->parts[i]);
	free(made);
	return -FI_ENOMEM;
}

int fab_region_deregister(struct fab_engine *engine, struct fab_region *region)
{
	if (fab_engine_reserve(engine, region->workers, 1))
		return -FI_ENOMEM;
	for (uint32_t i = 0; i < engine->worker_count; i++) {
		if (!region->parts[i])
			continue;
		region->closing++;
		fab_engine_command(engine, i, FAB_COMMAND_DEREGISTER,
				   FAB_NO_PEER, region->parts[i]);
	}
	return 0;
}

uint64_t fab_region_key(const struct fab_region *region, uint32_t worker,
			uint32_t lane)
{
	const struct fab_registration *part =
		worker < FAB_MAX_WORKERS ? region->parts[worker] : NULL;

	return part && lane < part->lane_count ? part->lanes[lane].key : 0;
}

uint64_t fab_region_base(const struct fab_region *region)
{
	for (uint32_t i = 0; i < FAB_MAX_WORKERS; i++) {
		if (region->parts[i])
			return region->parts[i]->base;
	}
	return 0;
}

int fab_region_gather(struct fab_completion *completion)
{
	struct fab_region *region =
		(struct fab_region *) (uintptr_t) completion->token;

	completion->token = region->token;
	if (completion->kind == FAB_REGION_DEREGISTERED) {
		region->parts[completion->worker] = NULL;
		if (--region->closing)
			return 0;
		region_free(region);
		return 1;
	}
	fab_error_keep_first(&region->error, completion);
	if (!region->status)
		region->status = completion->status;
	if (--region->opening)
		return 0;
	completion->status = region->status;
	completion->error = region->error;
	region->error = NULL;
	return 1;
}

void fab_region_free_list(struct fab_link *list)
{
	while (!fab_list_empty(list))
		region_free(FAB_ENTRY(list->next, struct fab_region, link));
}
