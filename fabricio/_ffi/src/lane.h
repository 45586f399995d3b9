/* Lane: one NIC's fabric, domain, completion queue, address vector and
 * endpoint, with the memory its frames go through. Only its worker calls
 * libfabric on it (FI_THREAD_DOMAIN). */
#ifndef FAB_LANE_H
#define FAB_LANE_H

#include "error.h"
#include "list.h"
#include "op.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

struct fab_address;

struct fab_lane {
	struct fi_info *info; /* owned, as are the next six */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *frames_mr; /* NULL without FI_MR_LOCAL */
	void *frames_desc;
	int cq_fd;              /* borrowed from cq; -1: no wait fd */
	int socket_set;         /* where its set was last; -1: not known */
	uint32_t lists_sockets; /* as in struct fab_tuning */
	uint32_t sockets_seen;  /* one was found (connections.h, N3) */
	unsigned char *frames;  /* owned: receive and bounce buffers */
	size_t frames_bytes;
	uint32_t frame_stride;
	uint32_t receive_count;
	struct fab_op *receives; /* owned, one a buffer */
	struct fab_op *unposted; /* receives that met -FI_EAGAIN */
	struct fab_op_slab ops;
	unsigned char **bounces; /* owned stack of free bounce buffers */
	uint32_t bounce_count;
	struct fab_link addresses; /* struct fab_address */
	struct fab_local *local;   /* owned; NULL: memory is not shared */
	struct fab_places *places; /* owned; NULL: none, or not known */
	uint32_t newcomers;        /* since we looked for places: address.h */
	uint64_t looked_ns;  /* when we last looked for those that are gone */
	uint32_t local_seen; /* news of its neighbours, up to here */
	uint32_t visiting;   /* visits that are not welcome yet */
	struct fab_op word;  /* context of fab_address_speak */
	struct fab_address *self; /* owned; NULL before it is needed */
	uint64_t heard_ns;        /* when something last arrived */
	uint64_t asked_ns; /* when the lane last spoke to itself; 0: heard */
	uint32_t address_bytes;
	unsigned char address[256];
	uint32_t inflight_count; /* RMA operations out */
	uint64_t inflight_bytes;
	uint32_t buried; /* operations that never complete: op.h */
	uint32_t limit_count;
	uint32_t peer_inflight; /* of one peer's, at most; 0: any */
	uint64_t limit_bytes;
	uint64_t operation_bytes; /* longest operation */
	uint64_t segment_bytes;   /* pages up to this size share one */
	uint32_t segments;
	uint32_t key_bytes;
	uint32_t virtual_addresses;
	uint32_t attaches; /* peers may be processes of this host: cma.h */
	uint32_t consumes_receives; /* FI_RX_CQ_DATA: immediates eat receives */
};

/* Open the `number`th lane of the plan. On failure everything is closed again
 * and *error says which call failed. [worker] */
int fab_lane_open(struct fab_lane *lane, const struct fab_options *options,
		  const struct fab_plan *plan, uint32_t number,
		  struct fab_error *error);

/* Close what fab_lane_open opened; regions must be closed before. Operations
 * that are out end with it, without a completion. [worker] */
void fab_lane_close(struct fab_lane *lane);
/* Close libfabric's objects and the memory they use, in libfabric's order.
 * [any], but nobody else may use the lane. */
void fab_lane_close_objects(struct fab_lane *lane);

/* Register memory with the lane's NIC: what the provider's mr_mode asks for is
 * done here. `access` are libfabric's flags. [worker] */
int fab_lane_register(struct fab_lane *lane, void *memory, size_t bytes,
		      uint64_t access, uint64_t key, struct fid_mr **mr,
		      struct fab_error *error);

/* The peer is lost, or the part has been given up (NULL: all parts): what is
 * out for it may never come back, and must not keep others from posting.
 * [worker] */
void fab_lane_set_adrift(struct fab_lane *lane, const struct fab_peer *peer,
			 const struct fab_part *part);

/* Post, or keep for the next pass on -FI_EAGAIN. [worker] */
int fab_lane_post_receive(struct fab_lane *lane, struct fab_op *receive);
int fab_lane_post_kept(struct fab_lane *lane);

/* Whether what is sent to the lane still arrives. A process that is killed in
 * the midst of sending keeps its place in the provider's queue, and nothing
 * behind it is seen. So a lane that hears nothing speaks to itself. [worker] */
int fab_lane_hears(struct fab_lane *lane, uint64_t now_ns,
		   uint64_t patience_ns);
/* fi_cq_read(3), as visits need it (local.h). [worker] */
ssize_t fab_lane_read(struct fab_lane *lane, struct fi_cq_data_entry *entries,
		      size_t count);

#endif
