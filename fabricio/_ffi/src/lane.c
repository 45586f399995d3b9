#include "lane.h"

#include "address.h"
#include "frame.h"
#include "local.h"
#include "places.h"
#include "provider.h"
#include "sockets.h"
#include "tuning.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Operation slots beyond the RMA limit, so that pages never starve frames. */
#define FRAME_RESERVE 32u

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void lane_read_limits(struct fab_lane *lane,
			     const struct fab_options *options,
			     const struct fab_plan *plan)
{
	const struct fi_info *info = lane->info;
	const struct fab_tuning *tuning =
		fab_tuning_find(info->fabric_attr->prov_name);
	uint64_t count = info->tx_attr->size;
	uint64_t reserve =
		count > 4 * FRAME_RESERVE ? FRAME_RESERVE : count / 4;
	uint64_t iov =
		smaller(info->tx_attr->iov_limit, info->tx_attr->rma_iov_limit);

	count -= reserve;
	if (tuning->inflight_count)
		count = smaller(count, tuning->inflight_count);
	if (options->inflight_count)
		count = smaller(count, options->inflight_count);
	lane->limit_count = count ? (uint32_t) count : 1;
	lane->limit_bytes = tuning->inflight_bytes;
	if (options->worker_count > 1 || plan->lane_count > 1)
		lane->limit_bytes = tuning->shared_bytes;
	if (options->inflight_bytes)
		lane->limit_bytes = options->inflight_bytes;
	lane->operation_bytes = smaller(tuning->operation_bytes,
					info->ep_attr->max_msg_size ?
						info->ep_attr->max_msg_size :
						UINT64_MAX);
	if (options->max_operation_bytes)
		lane->operation_bytes = smaller(lane->operation_bytes,
						options->max_operation_bytes);
	/* So that one long run is shared. */
	if (plan->lane_count > 1)
		lane->operation_bytes =
			smaller(lane->operation_bytes, options->stripe_bytes);
	lane->peer_inflight = tuning->peer_inflight;
	lane->lists_sockets = tuning->lists_sockets;
	lane->segments =
		options->segments ? options->segments : tuning->segments;
	lane->segment_bytes =
		options->segments ? UINT64_MAX : tuning->segment_bytes;
	if (lane->segments > iov)
		lane->segments = (uint32_t) iov;
	if (lane->segments > FAB_MAX_SEGMENTS)
		lane->segments = FAB_MAX_SEGMENTS;
	if (lane->segments == 0)
		lane->segments = 1;
	lane->key_bytes = (uint32_t) info->domain_attr->mr_key_size;
	lane->virtual_addresses =
		!!(info->domain_attr->mr_mode & FI_MR_VIRT_ADDR);
	lane->attaches = tuning->shares_memory && lane->virtual_addresses;
	lane->consumes_receives = !!(info->mode & FI_RX_CQ_DATA);
}

static int lane_open_queue(struct fab_lane *lane, struct fab_error *error)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_DATA,
		.wait_obj = FI_WAIT_FD,
	};
	int ret;

	/* Immediate data of peers take entries too. */
	attr.size =
		lane->info->tx_attr->size + lane->info->rx_attr->size + 8192;
	ret = fi_cq_open(lane->domain, &attr, &lane->cq, NULL);
	if (!ret) {
		ret = fi_control(&lane->cq->fid, FI_GETWAIT, &lane->cq_fd);
		if (!ret)
			return 0;
		fi_close(&lane->cq->fid);
		lane->cq = NULL;
	}
	lane->cq_fd = -1;
	attr.wait_obj = FI_WAIT_NONE;
	ret = fi_cq_open(lane->domain, &attr, &lane->cq, NULL);
	if (ret) {
		lane->cq = NULL;
		fab_error_set(error, ret, "fi_cq_open", 0, NULL);
	}
	return ret;
}

int fab_lane_register(struct fab_lane *lane, void *memory, size_t bytes,
		      uint64_t access, uint64_t key, struct fid_mr **mr,
		      struct fab_error *error)
{
	struct fid_mr *opened;
	int ret;

	ret = fi_mr_reg(lane->domain, memory, bytes, access, 0, key, 0, &opened,
			NULL);
	if (ret)
		return fab_error_set(error, ret, "fi_mr_reg", 0, NULL);
	if (lane->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
		ret = fi_mr_bind(opened, &lane->ep->fid, 0);
		if (!ret)
			ret = fi_mr_enable(opened);
		if (ret) {
			fi_close(&opened->fid);
			return fab_error_set(error, ret, "fi_mr_enable", 0,
					     NULL);
		}
	}
	*mr = opened;
	return 0;
}

/* One mapping: receive buffers first, then bounce buffers where the provider
 * wants frames in registered memory. */
static int lane_open_frames(struct fab_lane *lane, uint32_t frame_bytes,
			    struct fab_error *error)
{
	int local = !!(lane->info->domain_attr->mr_mode & FI_MR_LOCAL);
	uint32_t bounces = local ? 2 * FRAME_RESERVE : 0;
	void *memory;
	int ret;

	lane->frame_stride = (uint32_t) ((sizeof(struct fab_frame_header) +
					  frame_bytes + 63) &
					 ~63ull);
	lane->frames_bytes =
		(size_t) lane->frame_stride * (lane->receive_count + bounces);
	memory = mmap(NULL, lane->frames_bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return fab_error_set(error, -FI_ENOMEM, "mmap", 0, NULL);
	lane->frames = memory;
	lane->receives = calloc(lane->receive_count, sizeof(*lane->receives));
	lane->bounces = calloc(bounces + 1, sizeof(*lane->bounces));
	if (!lane->receives || !lane->bounces)
		return fab_error_set(error, -FI_ENOMEM, "calloc", 0, NULL);
	for (uint32_t i = 0; i < bounces; i++)
		lane->bounces[lane->bounce_count++] =
			lane->frames +
			(size_t) lane->frame_stride * (lane->receive_count + i);
	if (!local)
		return 0;
	ret = fab_lane_register(lane, lane->frames, lane->frames_bytes,
				FI_SEND | FI_RECV, 0, &lane->frames_mr, error);
	if (ret)
		return ret;
	lane->frames_desc = fi_mr_desc(lane->frames_mr);
	return 0;
}

static int lane_open_endpoint(struct fab_lane *lane, struct fab_error *error)
{
	struct fi_av_attr av_attr = {
		.type = lane->info->domain_attr->av_type,
		.count = 256,
	};
	size_t bytes = sizeof(lane->address);
	int ret;

	if (av_attr.type == FI_AV_UNSPEC)
		av_attr.type = FI_AV_TABLE;
	ret = fi_av_open(lane->domain, &av_attr, &lane->av, NULL);
	if (ret) {
		lane->av = NULL;
		return fab_error_set(error, ret, "fi_av_open", 0, NULL);
	}
	ret = fi_endpoint(lane->domain, lane->info, &lane->ep, NULL);
	if (ret) {
		lane->ep = NULL;
		return fab_error_set(error, ret, "fi_endpoint", 0, NULL);
	}
	ret = fi_ep_bind(lane->ep, &lane->av->fid, 0);
	if (!ret)
		ret = fi_ep_bind(lane->ep, &lane->cq->fid,
				 FI_TRANSMIT | FI_RECV);
	if (ret)
		return fab_error_set(error, ret, "fi_ep_bind", 0, NULL);
	ret = fi_enable(lane->ep);
	if (ret)
		return fab_error_set(error, ret, "fi_enable", 0, NULL);
	ret = fi_getname(&lane->ep->fid, lane->address, &bytes);
	if (ret)
		return fab_error_set(error, ret, "fi_getname", 0, NULL);
	lane->address_bytes = (uint32_t) bytes;
	if (!fab_tuning_find(lane->info->fabric_attr->prov_name)->shares_memory)
		return 0;
	lane->places = fab_places_open((const char *) lane->address);
	lane->local = fab_local_publish(lane->address, lane->address_bytes);
	if (!lane->local)
		return fab_error_set(error, -FI_ENOMEM, "calloc", 0, NULL);
	return 0;
}

static int lane_open_objects(struct fab_lane *lane,
			     const struct fab_options *options,
			     struct fab_error *error)
{
	uint64_t frame_bytes = options->frame_bytes;
	int ret;

	ret = fi_fabric(lane->info->fabric_attr, &lane->fabric, NULL);
	if (ret) {
		lane->fabric = NULL;
		return fab_error_set(error, ret, "fi_fabric", 0, NULL);
	}
	ret = fi_domain(lane->fabric, lane->info, &lane->domain, NULL);
	if (ret) {
		lane->domain = NULL;
		return fab_error_set(error, ret, "fi_domain", 0, NULL);
	}
	ret = lane_open_queue(lane, error);
	if (ret)
		return ret;
	ret = lane_open_endpoint(lane, error);
	if (ret)
		return ret;
	if (lane->info->ep_attr->max_msg_size)
		frame_bytes = smaller(frame_bytes,
				      lane->info->ep_attr->max_msg_size -
					      sizeof(struct fab_frame_header));
	ret = fab_op_slab_construct(&lane->ops,
				    lane->limit_count + FRAME_RESERVE);
	if (ret)
		return fab_error_set(error, ret, "calloc", 0, NULL);
	ret = lane_open_frames(lane, (uint32_t) frame_bytes, error);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < lane->receive_count && !ret; i++) {
		struct fab_op *receive = &lane->receives[i];

		receive->kind = FAB_OP_RECEIVE;
		receive->buffer =
			lane->frames + (size_t) lane->frame_stride * i;
		ret = fab_lane_post_receive(lane, receive);
	}
	if (ret)
		fab_error_set(error, ret, "fi_recv", 0, NULL);
	return ret;
}

int fab_lane_open(struct fab_lane *lane, const struct fab_options *options,
		  const struct fab_plan *plan, uint32_t number,
		  struct fab_error *error)
{
	const char *nic = NULL, *source = options->source;
	int ret;

	memset(lane, 0, sizeof(*lane));
	fab_list_construct(&lane->addresses);
	lane->cq_fd = -1;
	lane->socket_set = -1;
	lane->receive_count = options->receive_count;
	if (plan->nics)
		nic = plan->nics[number];
	if (plan->sources && plan->sources[number])
		source = plan->sources[number];
	ret = fab_provider_find(options->provider, nic, source, &lane->info,
				error);
	if (ret)
		return ret;
	if (lane->receive_count > lane->info->rx_attr->size)
		lane->receive_count = (uint32_t) lane->info->rx_attr->size;
	lane_read_limits(lane, options, plan);
	ret = lane_open_objects(lane, options, error);
	if (ret)
		fab_lane_close(lane);
	return ret;
}

void fab_lane_close_objects(struct fab_lane *lane)
{
	struct fab_socket_numbers sockets = {0};

	if (lane->ep && lane->lists_sockets)
		fab_sockets_remember(lane, &sockets);
	if (lane->ep)
		fi_close(&lane->ep->fid);
	if (lane->frames_mr)
		fi_close(&lane->frames_mr->fid);
	if (lane->av)
		fi_close(&lane->av->fid);
	if (lane->cq)
		fi_close(&lane->cq->fid);
	if (lane->domain)
		fi_close(&lane->domain->fid);
	if (lane->fabric)
		fi_close(&lane->fabric->fid);
	fab_sockets_close_forgotten(&sockets);
	fab_places_close(lane->places);
	if (lane->info)
		fi_freeinfo(lane->info);
	if (lane->frames)
		munmap(lane->frames, lane->frames_bytes);
	for (uint32_t i = 0; i < lane->ops.capacity; i++) {
		struct fab_op *op = &lane->ops.ops[i];

		if (op->posted && op->kind == FAB_OP_FRAME)
			free(op->frame);
	}
	fab_op_slab_destruct(&lane->ops);
	free(lane->receives);
	free(lane->bounces);
}

void fab_lane_close(struct fab_lane *lane)
{
	if (lane->self)
		fab_address_release(lane, lane->self);
	/* Peers have given back their addresses: guests have what is left. */
	if (lane->local)
		fab_local_retire(lane->local, lane);
	else
		fab_lane_close_objects(lane);
	memset(lane, 0, sizeof(*lane));
}

void fab_lane_set_adrift(struct fab_lane *lane, const struct fab_peer *peer,
			 const struct fab_part *part)
{
	for (uint32_t i = 0; i < lane->ops.capacity; i++) {
		struct fab_op *op = &lane->ops.ops[i];

		if (!op->posted || op->kind != FAB_OP_RMA || op->peer != peer ||
		    (part && op->part != part) || op->adrift)
			continue;
		op->adrift = 1;
		lane->inflight_count--;
		lane->inflight_bytes -= op->bytes;
	}
}

int fab_lane_post_receive(struct fab_lane *lane, struct fab_op *receive)
{
	ssize_t ret;

	ret = fi_recv(lane->ep, receive->buffer, lane->frame_stride,
		      lane->frames_desc, FI_ADDR_UNSPEC, receive);
	if (ret == -FI_EAGAIN) {
		receive->next = lane->unposted;
		lane->unposted = receive;
		return 0;
	}
	return (int) ret;
}

int fab_lane_post_kept(struct fab_lane *lane)
{
	struct fab_op *kept = lane->unposted;
	int ret = 0;

	lane->unposted = NULL;
	while (kept && !ret) {
		struct fab_op *receive = kept;

		kept = receive->next;
		ret = fab_lane_post_receive(lane, receive);
	}
	return ret;
}

ssize_t fab_lane_read(struct fab_lane *lane, struct fi_cq_data_entry *entries,
		      size_t count)
{
	return lane->visiting ? fab_local_read(lane, entries, count) :
				fi_cq_read(lane->cq, entries, count);
}

int fab_lane_hears(struct fab_lane *lane, uint64_t now_ns, uint64_t patience_ns)
{
	uint32_t length = (uint32_t) strlen((const char *) lane->address) + 1;

	if (!lane->attaches || now_ns - lane->heard_ns < patience_ns)
		return 1;
	if (!lane->asked_ns)
		lane->asked_ns = now_ns;
	if (!lane->self &&
	    fab_address_guest(lane, lane->address, length, &lane->self))
		return 1; /* out of memory: it is not known */
	fab_address_speak(lane, lane->self);
	return now_ns - lane->asked_ns < patience_ns;
}
