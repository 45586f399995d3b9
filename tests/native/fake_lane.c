#include "fake_lane.h"

#include <string.h>
#include <sys/mman.h>

#define FAKE_OF(fid, member) FAB_ENTRY(fid, struct fake, member)

/* The worker gets no thread. */
int __wrap_fab_worker_start(struct fab_worker *worker);
void __wrap_fab_worker_join(struct fab_worker *worker);

int __wrap_fab_worker_start(struct fab_worker *worker)
{
	(void) worker;
	return 0;
}

void __wrap_fab_worker_join(struct fab_worker *worker)
{
	(void) worker;
}

/* --- libfabric's side ---------------------------------------------------- */

static struct fake_post *post_add(struct fake *fake, uint32_t kind,
				  void *context)
{
	struct fake_post *post;

	if (fake->post_count == fake->post_capacity) {
		fake->post_capacity =
			fake->post_capacity ? 2 * fake->post_capacity : 256;
		fake->posts = reallocarray(fake->posts, fake->post_capacity,
					   sizeof(*post));
		CHECK(fake->posts);
	}
	post = &fake->posts[fake->post_count++];
	memset(post, 0, sizeof(*post));
	post->kind = kind;
	post->context = context;
	return post;
}

static int post_refused(struct fake *fake)
{
	if (!fake->again)
		return 0;
	fake->again--;
	return 1;
}

static ssize_t ep_recv(struct fid_ep *ep, void *buffer, size_t bytes,
		       void *desc, fi_addr_t source, void *context)
{
	struct fake *fake = FAKE_OF(ep, ep);

	(void) desc;
	(void) source;
	CHECK(bytes >= FAKE_FRAME_BYTES);
	if (fake->recv_again) {
		fake->recv_again--;
		return -FI_EAGAIN;
	}
	CHECK(fake->receive_count < 64);
	fake->receives[fake->receive_count++] =
		(struct fake_receive) {buffer, context};
	return 0;
}

static ssize_t ep_send(struct fid_ep *ep, const void *data, size_t bytes,
		       void *desc, fi_addr_t address, void *context)
{
	struct fake *fake = FAKE_OF(ep, ep);
	const unsigned char *payload = data;
	struct fake_post *post;

	(void) desc;
	if (post_refused(fake))
		return -FI_EAGAIN;
	if (fake->send_code)
		return fake->send_code;
	post = post_add(fake, FAKE_SEND, context);
	post->address = address;
	post->bytes = bytes;
	memcpy(&post->header, data, sizeof(post->header));
	payload += sizeof(post->header);
	bytes -= sizeof(post->header);
	if (post->header.kind == FAB_FRAME_ANNOUNCE) {
		CHECK(bytes == sizeof(post->announce));
		memcpy(&post->announce, payload, bytes);
	} else if (post->header.kind == FAB_FRAME_CONFIRM) {
		CHECK(bytes == sizeof(post->confirm));
		memcpy(&post->confirm, payload, bytes);
	} else if (post->header.kind == FAB_FRAME_PROVE ||
		   post->header.kind == FAB_FRAME_PROVEN) {
		CHECK(bytes == sizeof(post->proof));
		memcpy(&post->proof, payload, bytes);
	}
	return 0;
}

static ssize_t ep_rma(struct fake *fake, uint32_t kind,
		      const struct fi_msg_rma *msg, uint64_t flags)
{
	struct fake_post *post;

	if (post_refused(fake))
		return -FI_EAGAIN;
	if (fake->fail_code && fake->fail_at-- == 0) {
		int code = fake->fail_code;

		fake->fail_code = 0;
		return code;
	}
	CHECK(flags & FI_COMPLETION);
	CHECK(msg->iov_count && msg->iov_count == msg->rma_iov_count);
	CHECK(msg->iov_count <= fake->lane->segments);
	post = post_add(fake, kind, msg->context);
	post->address = msg->addr;
	post->segments = (uint32_t) msg->iov_count;
	post->has_immediate = !!(flags & FI_REMOTE_CQ_DATA);
	post->immediate = post->has_immediate ? (uint32_t) msg->data : 0;
	post->local = (uint64_t) (uintptr_t) msg->msg_iov[0].iov_base;
	post->remote = msg->rma_iov[0].addr;
	post->key = msg->rma_iov[0].key;
	for (size_t i = 0; i < msg->iov_count; i++) {
		CHECK(msg->msg_iov[i].iov_len == msg->rma_iov[i].len);
		post->bytes += msg->rma_iov[i].len;
	}
	return 0;
}

static ssize_t ep_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	return ep_rma(FAKE_OF(ep, ep), FAKE_WRITE, msg, flags);
}

static ssize_t ep_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg,
			  uint64_t flags)
{
	CHECK(!(flags & FI_REMOTE_CQ_DATA));
	return ep_rma(FAKE_OF(ep, ep), FAKE_READ, msg, flags);
}

static struct fake_event *event_first(struct fake *fake)
{
	return fake->event_first < fake->event_count ?
		       &fake->events[fake->event_first] :
		       NULL;
}

static ssize_t cq_read(struct fid_cq *cq, void *buffer, size_t count)
{
	struct fake *fake = FAKE_OF(cq, cq);
	struct fi_cq_data_entry *entries = buffer;
	struct fake_event *event;
	size_t n = 0;

	while (n < count && (event = event_first(fake)) && event->ret == 1) {
		entries[n++] = event->entry;
		fake->event_first++;
	}
	if (n)
		return (ssize_t) n;
	event = event_first(fake);
	if (!event)
		return -FI_EAGAIN;
	/* An error stays until it is read. */
	if (event->ret != -FI_EAVAIL)
		fake->event_first++;
	return event->ret;
}

static ssize_t cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *entry,
			  uint64_t flags)
{
	struct fake *fake = FAKE_OF(cq, cq);
	struct fake_event *event = event_first(fake);

	(void) flags;
	if (!event || event->ret != -FI_EAVAIL)
		return -FI_EAGAIN;
	*entry = event->error;
	fake->event_first++;
	return 1;
}

static const char *cq_strerror(struct fid_cq *cq, int prov_errno,
			       const void *err_data, char *buffer, size_t bytes)
{
	(void) cq;
	(void) err_data;
	snprintf(buffer, bytes, "scripted %d", prov_errno);
	return buffer;
}

static int av_insert(struct fid_av *av, const void *address, size_t count,
		     fi_addr_t *fi_addr, uint64_t flags, void *context)
{
	struct fake *fake = FAKE_OF(av, av);

	(void) flags;
	(void) context;
	CHECK(count == 1);
	memcpy(fi_addr, address, sizeof(*fi_addr));
	fake->addresses++;
	return 1;
}

static int av_remove(struct fid_av *av, fi_addr_t *fi_addr, size_t count,
		     uint64_t flags)
{
	struct fake *fake = FAKE_OF(av, av);

	(void) fi_addr;
	(void) flags;
	CHECK(count == 1 && fake->addresses);
	fake->addresses--;
	return 0;
}

static int fid_close(struct fid *fid)
{
	(void) fid;
	return 0;
}

static int mr_close(struct fid *fid)
{
	struct fake *fake = fid->context;

	if (fake->on_mr_close)
		fake->on_mr_close(fake);
	fake->mr_closed++;
	free(fid);
	return 0;
}

static struct fi_ops fid_ops = {.size = sizeof(fid_ops), .close = fid_close};
static struct fi_ops mr_ops = {.size = sizeof(mr_ops), .close = mr_close};

static int mr_reg(struct fid *fid, const void *buffer, size_t bytes,
		  uint64_t access, uint64_t offset, uint64_t requested_key,
		  uint64_t flags, struct fid_mr **mr, void *context)
{
	struct fake *fake = FAKE_OF(fid, domain);
	struct fid_mr *opened;

	(void) buffer;
	(void) access;
	(void) offset;
	(void) flags;
	(void) context;
	CHECK(bytes);
	if (fake->mr_code)
		return fake->mr_code;
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -FI_ENOMEM;
	opened->fid.ops = &mr_ops;
	opened->fid.context = fake;
	opened->key = requested_key;
	fake->mr_opened++;
	*mr = opened;
	return 0;
}

static struct fi_ops_msg msg_ops = {
	.size = sizeof(msg_ops),
	.recv = ep_recv,
	.send = ep_send,
};
static struct fi_ops_rma rma_ops = {
	.size = sizeof(rma_ops),
	.readmsg = ep_readmsg,
	.writemsg = ep_writemsg,
};
static struct fi_ops_cq cq_ops = {
	.size = sizeof(cq_ops),
	.read = cq_read,
	.readerr = cq_readerr,
	.strerror = cq_strerror,
};
static struct fi_ops_av av_ops = {
	.size = sizeof(av_ops),
	.insert = av_insert,
	.remove = av_remove,
};
static struct fi_ops_mr domain_ops = {
	.size = sizeof(domain_ops),
	.reg = mr_reg,
};

/* --- the engine's side --------------------------------------------------- */

static void lane_open(struct fake *fake, const struct fake_limits *limits)
{
	struct fab_lane *lane = fake->lane;
	uint32_t bounces = limits->bounce ? 8 : 0;

	fake->ep.fid.ops = fake->cq.fid.ops = fake->av.fid.ops =
		fake->domain.fid.ops = fake->fabric.fid.ops = &fid_ops;
	fake->ep.msg = &msg_ops;
	fake->ep.rma = &rma_ops;
	fake->cq.ops = &cq_ops;
	fake->av.ops = &av_ops;
	fake->domain.mr = &domain_ops;
	fab_list_construct(&lane->addresses);
	lane->info = fi_allocinfo();
	CHECK(lane->info);
	lane->ep = &fake->ep;
	lane->cq = &fake->cq;
	lane->av = &fake->av;
	lane->domain = &fake->domain;
	lane->fabric = &fake->fabric;
	lane->cq_fd = limits->no_wait ? -1 : fake->engine->doorbell.fd;
	lane->address_bytes = sizeof(fi_addr_t);
	lane->frame_stride = FAKE_FRAME_BYTES;
	lane->receive_count = 16;
	lane->frames_bytes =
		(size_t) lane->frame_stride * (lane->receive_count + bounces);
	lane->frames = mmap(NULL, lane->frames_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(lane->frames != MAP_FAILED);
	lane->limit_count =
		limits->inflight_count ? limits->inflight_count : 64;
	lane->limit_bytes =
		limits->inflight_bytes ? limits->inflight_bytes : 1ull << 30;
	lane->operation_bytes =
		limits->operation_bytes ? limits->operation_bytes : 1ull << 20;
	lane->segments = limits->segments ? limits->segments : 1;
	lane->segment_bytes = UINT64_MAX;
	CHECK(!fab_op_slab_construct(&lane->ops, lane->limit_count + 32));
	lane->receives = calloc(lane->receive_count, sizeof(*lane->receives));
	lane->bounces = calloc(bounces + 1, sizeof(*lane->bounces));
	CHECK(lane->receives && lane->bounces);
	for (uint32_t i = 0; i < bounces; i++)
		lane->bounces[lane->bounce_count++] =
			lane->frames +
			(size_t) lane->frame_stride * (lane->receive_count + i);
	if (bounces) {
		struct fab_error error;

		CHECK(!fab_lane_register(lane, lane->frames, lane->frames_bytes,
					 FI_SEND | FI_RECV, 0, &lane->frames_mr,
					 &error));
	}
	for (uint32_t i = 0; i < lane->receive_count; i++) {
		lane->receives[i].kind = FAB_OP_RECEIVE;
		lane->receives[i].buffer =
			lane->frames + (size_t) lane->frame_stride * i;
		CHECK(!fab_lane_post_receive(lane, &lane->receives[i]));
	}
}

void fake_open(struct fake *fake, const struct fab_options *options,
	       const struct fake_limits *limits)
{
	static const struct fake_limits no_limits;
	struct fab_options mine = {0};

	memset(fake, 0, sizeof(*fake));
	if (options)
		mine = *options;
	if (!mine.peer_timeout_ns)
		mine.peer_timeout_ns = 8 * FAKE_SECOND_NS;
	CHECK(!fab_engine_open(&mine, &fake->engine));
	fake->worker = &fake->engine->workers[0];
	fake->worker->now_ns = 1000 * FAKE_SECOND_NS;
	fake->worker->lane_count = 1;
	fake->lane = &fake->worker->lanes[0];
	lane_open(fake, limits ? limits : &no_limits);
}

static void take_commands(struct fake *fake)
{
	struct fab_command command;

	while (!fab_ring_pop(&fake->worker->commands, &command))
		fab_worker_execute(fake->worker, &command);
}

void fake_stop(struct fake *fake)
{
	struct fab_worker *worker = fake->worker;
	struct fab_link *link;

	fab_engine_stop(fake->engine);
	take_commands(fake);
	for (link = worker->regions.next; link != &worker->regions;
	     link = link->next)
		fab_registration_unregister(
			FAB_ENTRY(link, struct fab_registration, link));
	for (uint32_t i = 0; i < worker->peer_count; i++)
		fab_peer_forget(worker, worker->peers[i]);
	fab_lane_close(fake->lane);
	for (uint32_t i = 0; i < worker->peer_count; i++) {
		if (worker->peers[i]->state != FAB_PEER_FREE)
			fab_peer_quiesce(worker, worker->peers[i]);
	}
}

void fake_close(struct fake *fake)
{
	if (!fake->worker->stopping)
		fake_stop(fake);
	CHECK(fake->mr_opened == fake->mr_closed);
	CHECK(fake->addresses == 0);
	fab_engine_close(fake->engine);
	free(fake->posts);
	free(fake->events);
}

void fake_pass(struct fake *fake)
{
	take_commands(fake);
	if (fake->worker->failed)
		return;
	fab_post_pass(fake->worker);
	fab_reap_pass(fake->worker, fake->lane);
}

void fake_run(struct fake *fake)
{
	size_t before;

	do {
		before = fake->post_count + fake->event_first;
		fake_pass(fake);
	} while (fake->post_count + fake->event_first != before);
}

void fake_tick(struct fake *fake, uint64_t ns)
{
	struct fab_worker *worker = fake->worker;

	worker->now_ns += ns;
	for (uint32_t i = 0; i < worker->peer_count; i++) {
		if (worker->peers[i]->state != FAB_PEER_FREE)
			fab_peer_tick(worker, worker->peers[i]);
	}
}
