/* Posting: an operation becomes pending; nothing moves before it lands. */
#include "ep.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define POST_FLAGS                                                             \
	(FI_COMPLETION | FI_MORE | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | \
	 FI_DELIVERY_COMPLETE)

static struct sim_ep *post_ep(struct fid_ep *fid)
{
	return FAB_ENTRY(fid, struct sim_ep, fid);
}

/* Read the pieces; their sum goes to *bytes. */
static int post_gather(const struct iovec *iov, void **desc, size_t count,
		       struct sim_iov *pieces, uint64_t *bytes)
{
	*bytes = 0;
	if (count > SIM_IOV_LIMIT)
		return -FI_EINVAL;
	for (size_t i = 0; i < count; i++) {
		pieces[i].base = iov[i].iov_base;
		pieces[i].length = iov[i].iov_len;
		pieces[i].key = desc ? (uint64_t) (uintptr_t) desc[i] : 0;
		if (iov[i].iov_len && !pieces[i].key)
			return -FI_EINVAL; /* FI_MR_LOCAL */
		*bytes += iov[i].iov_len;
	}
	return 0;
}

/* When the last byte is through the receiver's link, if it comes `at`: the
 * first one came earlier, as fast as the sender's link allows, so that only
 * another sender's bytes are waited for. */
static uint64_t post_pass(struct sim_nic *nic, uint64_t at, uint64_t bytes)
{
	uint64_t wire_ns = sim_nic_wire_ns(nic, bytes);

	return sim_nic_reserve(nic, SIM_RX, at > wire_ns ? at - wire_ns : 0,
			       bytes);
}

/* When the last byte arrives, past both NICs' links. */
static uint64_t post_due(struct sim_ep *ep, const struct sim_op *op)
{
	const struct sim_config *config = &ep->domain->config;
	struct sim_nic *near = ep->domain->nic, *far = op->path->nic;
	uint64_t due, now_ns = sim_now();
	uint32_t last;

	if (op->kind == SIM_READ && far) {
		/* The request goes there first. */
		due = sim_nic_reserve(far, SIM_TX, now_ns + config->latency_ns,
				      op->bytes);
		due += config->latency_ns;
		due = post_pass(near, due, op->bytes);
	} else {
		due = sim_nic_reserve(near, SIM_TX, now_ns, op->bytes);
		due += config->latency_ns;
		if (far)
			due = post_pass(far, due, op->bytes);
	}
	/* Q2 */
	if (ep->pending.count) {
		last = ep->pending.places[(ep->pending.head +
					   ep->pending.count - 1) &
					  ep->pending.mask];
		if (ep->ops[last].due_ns > due)
			due = ep->ops[last].due_ns;
	}
	return due;
}

/* Where the next operation is made up: a free place, or, when none is, one that
 * never is posted, so that what is wrong with an operation is told all the same.
 */
static struct sim_op *post_prepare(struct sim_ep *ep, enum sim_kind kind,
				   void *context, uint64_t data,
				   size_t iov_count)
{
	struct sim_op *op =
		&ep->ops[ep->free.count ? sim_row_last(&ep->free) : ep->size];

	op->context = context;
	op->kind = (uint8_t) kind;
	op->moved = 0;
	op->iov_count = (uint8_t) iov_count;
	op->verdict.err = 0;
	op->verdict.prov_errno = 0;
	op->data = data & UINT32_MAX; /* cq_data_size */
	return op;
}

/* What post_prepare gave becomes pending. */
static ssize_t post(struct sim_ep *ep, struct sim_op *op, fi_addr_t address,
		    uint64_t flags)
{
	static const enum sim_count counts[] = {
		[SIM_WRITE] = SIM_WRITES_POSTED,
		[SIM_READ] = SIM_READS_POSTED,
		[SIM_SEND] = SIM_SENDS_POSTED,
	};
	struct sim_domain *domain = ep->domain;
	struct sim_nic *nic = domain->nic;
	int ret = 0;

	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (flags & ~(POST_FLAGS | FI_REMOTE_CQ_DATA))
		return -FI_EBADFLAGS;
	op->path = sim_av_path(ep->av, address);
	if (!op->path)
		return -FI_EINVAL;
	if (op->bytes > domain->config.message_bytes)
		return -FI_EMSGSIZE;
	if (!ep->free.count)
		ret = -FI_EAGAIN;
	else if (atomic_load_explicit(&nic->attention, memory_order_acquire) &
		 SIM_ATTENTION_POST)
		ret = sim_nic_post(nic, (enum sim_kind) op->kind, &op->verdict);
	if (ret) {
		sim_count(&domain->counters, SIM_AGAIN, 1);
		return ret;
	}
	op->completes = !ep->tx_selective || (flags & FI_COMPLETION);
	op->immediate = !!(flags & FI_REMOTE_CQ_DATA);
	if (domain->config.paced)
		op->due_ns = post_due(ep, op);
	op->path->user_count++;
	sim_row_push(&ep->pending, sim_row_last(&ep->free));
	ep->free.count--;
	sim_count(&domain->counters, counts[op->kind], 1);
	return 0;
}

static ssize_t post_rma(struct fid_ep *fid, enum sim_kind kind,
			const struct fi_msg_rma *msg, uint64_t flags)
{
	struct sim_ep *ep = post_ep(fid);
	struct sim_op *op =
		post_prepare(ep, kind, msg->context, msg->data, msg->iov_count);
	int ret = post_gather(msg->msg_iov, msg->desc, msg->iov_count, op->iov,
			      &op->bytes);

	if (ret)
		return ret;
	if (msg->rma_iov_count > 1 || (op->bytes && !msg->rma_iov_count))
		return -FI_EINVAL;
	if (msg->rma_iov_count) {
		if (msg->rma_iov->len != op->bytes)
			return -FI_EINVAL;
		op->address = msg->rma_iov->addr;
		op->key = msg->rma_iov->key;
	}
	return post(ep, op, msg->addr, flags);
}

static ssize_t post_message(struct fid_ep *fid, const struct fi_msg *msg,
			    uint64_t flags)
{
	struct sim_ep *ep = post_ep(fid);
	struct sim_op *op = post_prepare(ep, SIM_SEND, msg->context, msg->data,
					 msg->iov_count);
	int ret = post_gather(msg->msg_iov, msg->desc, msg->iov_count, op->iov,
			      &op->bytes);

	return ret ? ret : post(ep, op, msg->addr, flags);
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	if (flags & FI_REMOTE_CQ_DATA)
		return -FI_EBADFLAGS;
	return post_rma(fid, SIM_READ, msg, flags);
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t from,
			 uint64_t address, uint64_t key, void *context)
{
	struct fi_rma_iov remote = {.addr = address, .key = key};
	struct fi_msg_rma msg = {iov,     desc, count,   from,
				 &remote, 1,    context, 0};

	for (size_t i = 0; i < count; i++)
		remote.len += iov[i].iov_len;
	return post_rma(fid, SIM_READ, &msg, post_ep(fid)->tx_flags);
}

static ssize_t rma_read(struct fid_ep *fid, void *memory, size_t length,
			void *desc, fi_addr_t from, uint64_t address,
			uint64_t key, void *context)
{
	struct iovec iov = {memory, length};

	return rma_readv(fid, &iov, &desc, 1, from, address, key, context);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	return post_rma(fid, SIM_WRITE, msg, flags);
}

static ssize_t write_pieces(struct fid_ep *fid, const struct iovec *iov,
			    void **desc, size_t count, fi_addr_t to,
			    struct fi_rma_iov remote, uint64_t data,
			    uint64_t flags, void *context)
{
	struct fi_msg_rma msg = {iov,     desc, count,   to,
				 &remote, 1,    context, data};

	for (size_t i = 0; i < count; i++)
		remote.len += iov[i].iov_len;
	return post_rma(fid, SIM_WRITE, &msg, post_ep(fid)->tx_flags | flags);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t to,
			  uint64_t address, uint64_t key, void *context)
{
	struct fi_rma_iov remote = {.addr = address, .key = key};

	return write_pieces(fid, iov, desc, count, to, remote, 0, 0, context);
}

static ssize_t rma_write(struct fid_ep *fid, const void *memory, size_t length,
			 void *desc, fi_addr_t to, uint64_t address,
			 uint64_t key, void *context)
{
	struct iovec iov = {(void *) (uintptr_t) memory, length};

	return rma_writev(fid, &iov, &desc, 1, to, address, key, context);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *memory,
			     size_t length, void *desc, uint64_t data,
			     fi_addr_t to, uint64_t address, uint64_t key,
			     void *context)
{
	struct iovec iov = {(void *) (uintptr_t) memory, length};
	struct fi_rma_iov remote = {.addr = address, .key = key};

	return write_pieces(fid, &iov, &desc, 1, to, remote, data,
			    FI_REMOTE_CQ_DATA, context);
}

/* inject_size is 0: nothing may be injected. */
static ssize_t rma_inject(struct fid_ep *fid, const void *memory, size_t length,
			  fi_addr_t to, uint64_t address, uint64_t key)
{
	(void) fid;
	(void) memory;
	(void) length;
	(void) to;
	(void) address;
	(void) key;
	return -FI_ENOSYS;
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *memory,
			      size_t length, uint64_t data, fi_addr_t to,
			      uint64_t address, uint64_t key)
{
	(void) data;
	return rma_inject(fid, memory, length, to, address, key);
}

struct fi_ops_rma sim_rma_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t from,
			 void *context)
{
	struct sim_ep *ep = post_ep(fid);
	struct sim_receive receive = {
		.context = context,
		.iov_count = (uint8_t) count,
	};
	uint64_t bytes;
	int ret = post_gather(iov, desc, count, receive.iov, &bytes);

	(void) from; /* no FI_DIRECTED_RECV: from anybody */
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (ret)
		return ret;
	for (size_t i = 0; i < count; i++) {
		const struct sim_iov *piece = &receive.iov[i];

		if (piece->length &&
		    !sim_mr_find(ep->domain, piece->key,
				 (uint64_t) (uintptr_t) piece->base,
				 piece->length, FI_RECV))
			return -FI_EINVAL;
	}
	sim_lock_take(&ep->receive_lock);
	if (ep->receive_count < ep->receive_size)
		ep->receives[(ep->receive_head + ep->receive_count++) &
			     ep->receive_mask] = receive;
	else
		ret = -FI_EAGAIN;
	sim_lock_give(&ep->receive_lock);
	return ret;
}

static ssize_t msg_recv(struct fid_ep *fid, void *memory, size_t length,
			void *desc, fi_addr_t from, void *context)
{
	struct iovec iov = {memory, length};

	return msg_recvv(fid, &iov, &desc, 1, from, context);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	if (flags & ~(FI_COMPLETION | FI_MORE))
		return -FI_EBADFLAGS;
	return msg_recvv(fid, msg->msg_iov, msg->desc, msg->iov_count,
			 msg->addr, msg->context);
}

static ssize_t send_pieces(struct fid_ep *fid, const struct iovec *iov,
			   void **desc, size_t count, fi_addr_t to,
			   uint64_t data, uint64_t flags, void *context)
{
	struct fi_msg msg = {iov, desc, count, to, context, data};

	return post_message(fid, &msg, post_ep(fid)->tx_flags | flags);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t to, void *context)
{
	return send_pieces(fid, iov, desc, count, to, 0, 0, context);
}

static ssize_t msg_send(struct fid_ep *fid, const void *memory, size_t length,
			void *desc, fi_addr_t to, void *context)
{
	struct iovec iov = {(void *) (uintptr_t) memory, length};

	return send_pieces(fid, &iov, &desc, 1, to, 0, 0, context);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *memory,
			    size_t length, void *desc, uint64_t data,
			    fi_addr_t to, void *context)
{
	struct iovec iov = {(void *) (uintptr_t) memory, length};

	return send_pieces(fid, &iov, &desc, 1, to, data, FI_REMOTE_CQ_DATA,
			   context);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *memory, size_t length,
			  fi_addr_t to)
{
	(void) fid;
	(void) memory;
	(void) length;
	(void) to;
	return -FI_ENOSYS;
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *memory,
			      size_t length, uint64_t data, fi_addr_t to)
{
	(void) data;
	return msg_inject(fid, memory, length, to);
}

struct fi_ops_msg sim_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = msg_recv,
	.recvv = msg_recvv,
	.recvmsg = msg_recvmsg,
	.send = msg_send,
	.sendv = msg_sendv,
	.sendmsg = post_message,
	.inject = msg_inject,
	.senddata = msg_senddata,
	.injectdata = msg_injectdata,
};
