#include "registration.h"

#include "worker.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>

static uint64_t registration_flags(uint32_t access)
{
	uint64_t flags = FI_READ | FI_WRITE | FI_SEND | FI_RECV;

	if (access & FAB_ACCESS_REMOTE_READ)
		flags |= FI_REMOTE_READ;
	if (access & FAB_ACCESS_REMOTE_WRITE)
		flags |= FI_REMOTE_WRITE;
	return flags;
}

void fab_registration_unregister(struct fab_registration *registration)
{
	for (uint32_t i = 0; i < registration->lane_count; i++) {
		if (registration->lanes[i].mr)
			fi_close(&registration->lanes[i].mr->fid);
		registration->lanes[i].mr = NULL;
	}
}

void fab_registration_open(struct fab_worker *worker,
			   struct fab_registration *registration)
{
	struct fab_error error = {0};
	int ret = worker->failed ?
			  fab_error_set(&error, -FI_EOPBADSTATE, "fi_mr_reg", 0,
					"the engine has failed") :
			  0;

	for (uint32_t i = 0; i < registration->lane_count && !ret; i++) {
		struct fab_lane *lane = &worker->lanes[i];
		struct fid_mr *mr;

		ret = fab_lane_register(
			lane, (void *) (uintptr_t) registration->address,
			registration->bytes,
			registration_flags(registration->access),
			registration->key, &mr, &error);
		if (ret)
			break;
		registration->lanes[i].mr = mr;
		registration->lanes[i].desc = fi_mr_desc(mr);
		registration->lanes[i].key = fi_mr_key(mr);
		registration->base =
			lane->virtual_addresses ? registration->address : 0;
	}
	if (ret)
		fab_registration_unregister(registration);
	fab_list_append(&worker->regions, &registration->link);
	fab_worker_report(worker, FAB_REGION_REGISTERED, FAB_NO_PEER,
			  registration->token, &error);
}

static void registration_finish(struct fab_worker *worker,
				struct fab_registration *registration)
{
	fab_registration_unregister(registration);
	fab_worker_report(worker, FAB_REGION_DEREGISTERED, FAB_NO_PEER,
			  registration->token, NULL);
	if (fab_link_listed(&registration->link))
		fab_list_remove(&registration->link);
	free(registration);
}

void fab_registration_close(struct fab_worker *worker,
			    struct fab_registration *registration)
{
	if (registration->transfers)
		registration->closing = 1;
	else
		registration_finish(worker, registration);
}

static int registration_has_key(const struct fab_registration *registration,
				uint64_t key)
{
	for (uint32_t i = 0; i < registration->lane_count; i++) {
		if (registration->lanes[i].mr &&
		    registration->lanes[i].key == key)
			return 1;
	}
	return 0;
}

int fab_registration_grants(const struct fab_worker *worker, uint64_t key,
			    uint32_t access)
{
	const struct fab_link *link = worker->regions.next;

	for (; link != &worker->regions; link = link->next) {
		const struct fab_registration *registration =
			FAB_ENTRY(link, const struct fab_registration, link);

		if (registration_has_key(registration, key))
			return (registration->access & access) == access ?
				       0 :
				       -FI_EACCES;
	}
	return -FI_ENOKEY;
}

void fab_registration_hold(struct fab_registration *registration)
{
	registration->transfers++;
}

void fab_registration_drop(struct fab_worker *worker,
			   struct fab_registration *registration)
{
	if (--registration->transfers == 0 && registration->closing)
		registration_finish(worker, registration);
}
