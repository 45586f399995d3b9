#include "region.h"

#include "worker.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>

static uint64_t region_flags(uint32_t access)
{
	uint64_t flags = FI_READ | FI_WRITE | FI_SEND | FI_RECV;

	if (access & FAB_ACCESS_REMOTE_READ)
		flags |= FI_REMOTE_READ;
	if (access & FAB_ACCESS_REMOTE_WRITE)
		flags |= FI_REMOTE_WRITE;
	return flags;
}

void fab_region_unregister(struct fab_region *region)
{
	for (uint32_t i = 0; i < region->lane_count; i++) {
		if (region->lanes[i].mr)
			fi_close(&region->lanes[i].mr->fid);
		region->lanes[i].mr = NULL;
	}
}

void fab_region_open(struct fab_worker *worker, struct fab_region *region)
{
	struct fab_error error = {0};
	int ret = worker->failed ?
			  fab_error_set(&error, -FI_EOPBADSTATE, "fi_mr_reg", 0,
					"the engine has failed") :
			  0;

	for (uint32_t i = 0; i < region->lane_count && !ret; i++) {
		struct fab_lane *lane = &worker->lanes[i];
		struct fid_mr *mr;

		ret = fab_lane_register(
			lane, (void *) (uintptr_t) region->address,
			region->bytes, region_flags(region->access),
			region->key, &mr, &error);
		if (ret)
			break;
		region->lanes[i].mr = mr;
		region->lanes[i].desc = fi_mr_desc(mr);
		region->lanes[i].key = fi_mr_key(mr);
		region->base = lane->virtual_addresses ? region->address : 0;
	}
	if (ret)
		fab_region_unregister(region);
	fab_list_append(&worker->regions, &region->link);
	fab_worker_report(worker, FAB_REGION_REGISTERED, FAB_NO_PEER,
			  region->token, &error);
}

static void region_finish(struct fab_worker *worker, struct fab_region *region)
{
	fab_region_unregister(region);
	fab_worker_report(worker, FAB_REGION_DEREGISTERED, FAB_NO_PEER,
			  region->token, NULL);
	if (fab_link_listed(&region->link))
		fab_list_remove(&region->link);
	free(region);
}

void fab_region_close(struct fab_worker *worker, struct fab_region *region)
{
	if (region->transfers)
		region->closing = 1;
	else
		region_finish(worker, region);
}

static int region_has_key(const struct fab_region *region, uint64_t key)
{
	for (uint32_t i = 0; i < region->lane_count; i++) {
		if (region->lanes[i].mr && region->lanes[i].key == key)
			return 1;
	}
	return 0;
}

int fab_region_grants(const struct fab_worker *worker, uint64_t key,
		      uint32_t access)
{
	const struct fab_link *link = worker->regions.next;

	for (; link != &worker->regions; link = link->next) {
		const struct fab_region *region =
			FAB_ENTRY(link, const struct fab_region, link);

		if (region_has_key(region, key))
			return (region->access & access) == access ? 0 :
								     -FI_EACCES;
	}
	return -FI_ENOKEY;
}

void fab_region_hold(struct fab_region *region)
{
	region->transfers++;
}

void fab_region_drop(struct fab_worker *worker, struct fab_region *region)
{
	if (--region->transfers == 0 && region->closing)
		region_finish(worker, region);
}

uint64_t fab_region_key(const struct fab_region *region, uint32_t lane)
{
	return lane < region->lane_count ? region->lanes[lane].key : 0;
}

uint64_t fab_region_base(const struct fab_region *region)
{
	return region->base;
}
