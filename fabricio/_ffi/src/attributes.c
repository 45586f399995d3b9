/* What was opened, and what was counted, over all workers. */
#include "engine.h"
#include "tuning.h"

#include <rdma/fi_errno.h>
#include <string.h>

void fab_engine_attributes(const struct fab_engine *engine,
			   struct fab_attributes *attributes)
{
	const struct fab_worker *worker = &engine->workers[0];
	const struct fab_lane *lane = &worker->lanes[0];

	memset(attributes, 0, sizeof(*attributes));
	attributes->worker_count = engine->worker_count;
	if (!worker->lane_count)
		return;
	strncpy(attributes->provider, lane->info->fabric_attr->prov_name,
		sizeof(attributes->provider) - 1);
	strncpy(attributes->domain, lane->info->domain_attr->name,
		sizeof(attributes->domain) - 1);
	for (uint32_t i = 0; i < engine->worker_count; i++) {
		for (uint32_t j = 0; j < engine->workers[i].lane_count; j++) {
			uint32_t bytes =
				engine->workers[i].lanes[j].address_bytes;

			if (attributes->address_bytes < bytes)
				attributes->address_bytes = bytes;
		}
	}
	attributes->frame_bytes =
		lane->frame_stride - (uint32_t) sizeof(struct fab_frame_header);
	attributes->immediate_bytes =
		(uint32_t) lane->info->domain_attr->cq_data_size;
	attributes->key_bytes = lane->key_bytes;
	attributes->virtual_addresses = lane->virtual_addresses;
	attributes->wait_fd = lane->cq_fd >= 0;
	attributes->segments = lane->segments;
	attributes->inflight_count = lane->limit_count;
	attributes->writes_last =
		fab_tuning_find(attributes->provider)->writes_last;
	attributes->max_operation_bytes = lane->operation_bytes;
}

uint32_t fab_engine_lane_count(const struct fab_engine *engine, uint32_t worker)
{
	return worker < engine->worker_count ?
		       engine->workers[worker].lane_count :
		       0;
}

int fab_engine_address(const struct fab_engine *engine, uint32_t worker,
		       uint32_t lane, void *address, uint32_t capacity)
{
	const struct fab_lane *at;

	if (lane >= fab_engine_lane_count(engine, worker))
		return -FI_EINVAL;
	at = &engine->workers[worker].lanes[lane];
	if (capacity < at->address_bytes)
		return -FI_EINVAL;
	memset(address, 0, capacity);
	memcpy(address, at->address, at->address_bytes);
	return 0;
}

void fab_engine_statistics(const struct fab_engine *engine,
			   struct fab_statistics *statistics)
{
	memset(statistics, 0, sizeof(*statistics));
	for (uint32_t i = 0; i < engine->worker_count; i++) {
		const struct fab_counters *counters =
			&engine->workers[i].statistics;

#define ADD(name)           \
	statistics->name += \
		atomic_load_explicit(&counters->name, memory_order_relaxed)
		ADD(operations_posted);
		ADD(operations_completed);
		ADD(operations_failed);
		ADD(again);
		ADD(bytes_written);
		ADD(bytes_read);
		ADD(pages);
		ADD(immediates_received);
		ADD(frames_sent);
		ADD(frames_received);
		ADD(transfers_confirmed);
		ADD(stale_frames);
		ADD(stale_immediates);
		ADD(malformed_frames);
		ADD(stray_completions);
		ADD(lanes_failed);
		ADD(parts_restarted);
		ADD(sleeps);
		ADD(wakeups);
#undef ADD
	}
}
