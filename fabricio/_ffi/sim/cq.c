#include "cq.h"

#include "ep.h"
#include "status.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A sender whose target had no receive tries again after this. */
#define RETRY_NS 50000u

int sim_cq_push(struct sim_cq *cq, const struct sim_event *event)
{
	uint64_t ticket = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	struct sim_arrival *slot;

	for (;;) {
		uint64_t turn;

		slot = &cq->arrivals[ticket & cq->mask];
		turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
		if (turn == ticket) {
			if (atomic_compare_exchange_weak_explicit(
				    &cq->tail, &ticket, ticket + 1,
				    memory_order_relaxed, memory_order_relaxed))
				break;
		} else if ((int64_t) (turn - ticket) < 0) {
			return -FI_EAGAIN;
		} else {
			ticket = atomic_load_explicit(&cq->tail,
						      memory_order_relaxed);
		}
	}
	slot->event = *event;
	if (cq->wait_fd < 0) {
		atomic_store_explicit(&slot->turn, ticket + 1,
				      memory_order_release);
		return 0;
	}
	atomic_store(&slot->turn, ticket + 1);
	sim_cq_rouse(cq);
	return 0;
}

void sim_cq_rouse(struct sim_cq *cq)
{
	uint64_t one = 1;

	if (atomic_load(&cq->armed) && atomic_exchange(&cq->armed, 0))
		(void) !write(cq->event_fd, &one, sizeof(one));
}

void sim_cq_overrun(struct sim_cq *cq)
{
	atomic_store(&cq->overrun, 1);
	sim_cq_rouse(cq);
}

/* The arrival at the head, NULL: none. */
static struct sim_arrival *cq_head(struct sim_cq *cq)
{
	struct sim_arrival *slot = &cq->arrivals[cq->head & cq->mask];

	return atomic_load(&slot->turn) == cq->head + 1 ? slot : NULL;
}

static void cq_count(struct sim_cq *cq, uint64_t flags)
{
	if (flags & FI_REMOTE_CQ_DATA)
		sim_count(&cq->domain->counters, SIM_IMMEDIATES, 1);
	if (flags & FI_RECV)
		sim_count(&cq->domain->counters, SIM_MESSAGES, 1);
}

static size_t cq_take(struct sim_cq *cq, void *buffer, size_t place,
		      size_t count)
{
	struct sim_arrival *slot;

	while (place < count && !cq->failed && (slot = cq_head(cq))) {
		if (slot->event.verdict.err) {
			cq->failure = slot->event;
			cq->failed = 1;
		} else {
			cq_count(cq, slot->event.flags);
			sim_cq_write(cq, buffer, place++, &slot->event);
		}
		atomic_store_explicit(&slot->turn, cq->head + cq->mask + 1,
				      memory_order_release);
		cq->head++;
	}
	return place;
}

static ssize_t cq_read(struct fid_cq *fid, void *buffer, size_t count)
{
	struct sim_cq *cq = FAB_ENTRY(fid, struct sim_cq, fid);
	struct fab_link *link, *first;
	size_t place = 0;

	if (atomic_load_explicit(&cq->overrun, memory_order_relaxed))
		return -FI_EOVERRUN;
	if (cq->failed)
		return -FI_EAVAIL;
	/* Neither may starve the other, not even one entry a call. */
	cq->odd ^= 1;
	place = cq_take(cq, buffer, place, (count + cq->odd) / 2);
	first = cq->transmitters.next;
	for (link = first;
	     link != &cq->transmitters && place < count && !cq->failed;
	     link = link->next)
		place = sim_ep_progress(FAB_ENTRY(link, struct sim_ep, tx_link),
					buffer, place, count);
	if (first != &cq->transmitters && first->next != &cq->transmitters) {
		/* Another endpoint goes first next time. */
		fab_list_remove(first);
		fab_list_append(&cq->transmitters, first);
	}
	place = cq_take(cq, buffer, place, count);
	if (place)
		return (ssize_t) place;
	return cq->failed ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buffer, size_t count,
			   fi_addr_t *sources)
{
	ssize_t ret = cq_read(fid, buffer, count);

	for (ssize_t i = 0; sources && i < ret; i++)
		sources[i] = FI_ADDR_NOTAVAIL; /* no FI_SOURCE */
	return ret;
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *entry,
			  uint64_t flags)
{
	struct sim_cq *cq = FAB_ENTRY(fid, struct sim_cq, fid);

	if (flags)
		return -FI_EBADFLAGS;
	if (!cq->failed)
		return -FI_EAGAIN;
	/* Field by field: later versions of the struct are longer. */
	entry->op_context = cq->failure.context;
	entry->flags = cq->failure.flags;
	entry->len = cq->failure.length;
	entry->buf = cq->failure.buffer;
	entry->data = cq->failure.data;
	entry->tag = 0;
	entry->olen = cq->failure.overflow;
	entry->err = cq->failure.verdict.err;
	entry->prov_errno = cq->failure.verdict.prov_errno;
	entry->err_data_size = 0;
	cq->failed = 0;
	return 1;
}

static ssize_t cq_sread(struct fid_cq *fid, void *buffer, size_t count,
			const void *condition, int timeout)
{
	(void) fid;
	(void) buffer;
	(void) count;
	(void) condition;
	(void) timeout;
	return -FI_ENOSYS;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buffer, size_t count,
			    fi_addr_t *sources, const void *condition,
			    int timeout)
{
	(void) sources;
	return cq_sread(fid, buffer, count, condition, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct sim_cq *cq = FAB_ENTRY(fid, struct sim_cq, fid);

	if (cq->wait_fd < 0)
		return -FI_ENOSYS;
	sim_cq_rouse(cq);
	return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int prov_errno,
			       const void *data, char *buffer, size_t length)
{
	const char *text = sim_status_text(prov_errno);

	(void) fid;
	(void) data;
	if (buffer && length) {
		strncpy(buffer, text, length);
		buffer[length - 1] = '\0';
	}
	return text;
}

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

/* When something lands by itself; UINT64_MAX: never, or by the virtual clock,
 * which rouses. 0: now. */
static uint64_t cq_next_ns(const struct sim_cq *cq)
{
	const struct sim_config *config = &cq->domain->config;
	uint64_t now = config->paced ? sim_now() : 0;
	uint64_t next = UINT64_MAX;
	struct fab_link *link;

	for (link = cq->transmitters.next; link != &cq->transmitters;
	     link = link->next) {
		const struct sim_ep *ep =
			FAB_ENTRY(link, const struct sim_ep, tx_link);
		uint64_t due = sim_ep_due(ep);

		if (due <= now)
			return 0;
		due = config->virtual_clock ? UINT64_MAX : due - now;
		if (ep->waiting.count && due > RETRY_NS)
			due = RETRY_NS;
		if (due < next)
			next = due;
	}
	return next;
}

int sim_cq_trywait(struct sim_cq *cq)
{
	struct itimerspec timer = {0};
	uint64_t seen, next;

	(void) !read(cq->event_fd, &seen, sizeof(seen));
	atomic_store(&cq->armed, 1);
	next = cq_next_ns(cq);
	if (!next || cq->failed || cq_head(cq) || atomic_load(&cq->overrun)) {
		atomic_store(&cq->armed, 0);
		return -FI_EAGAIN;
	}
	/* Also disarms the last one, which makes its descriptor quiet. */
	if (next != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t) (next / 1000000000u);
		timer.it_value.tv_nsec = (long) (next % 1000000000u);
	}
	(void) timerfd_settime(cq->timer_fd, 0, &timer, NULL);
	return 0;
}

static void cq_close_fds(struct sim_cq *cq)
{
	int fds[] = {cq->wait_fd, cq->event_fd, cq->timer_fd};

	for (int i = 0; i < 3; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

static int cq_open_fds(struct sim_cq *cq)
{
	struct epoll_event event = {.events = EPOLLIN};

	cq->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	cq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cq->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (cq->wait_fd >= 0 && cq->event_fd >= 0 && cq->timer_fd >= 0 &&
	    !epoll_ctl(cq->wait_fd, EPOLL_CTL_ADD, cq->event_fd, &event) &&
	    !epoll_ctl(cq->wait_fd, EPOLL_CTL_ADD, cq->timer_fd, &event))
		return 0;
	return -errno;
}

static int cq_close(struct fid *fid)
{
	struct sim_cq *cq = FAB_ENTRY(fid, struct sim_cq, fid.fid);
	struct sim_wire *wire;
	int ret;

	if (cq->binding_count)
		return -FI_EBUSY;
	wire = sim_wire_enter(&ret);
	fab_list_remove(&cq->link);
	sim_wire_leave(wire);
	cq_close_fds(cq);
	cq->domain->child_count--;
	free(cq->arrivals);
	free(cq);
	return 0;
}

static int cq_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void) fid;
	(void) other;
	(void) flags;
	return -FI_ENOSYS;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	const struct sim_cq *cq = FAB_ENTRY(fid, const struct sim_cq, fid.fid);

	if (command == FI_GETWAITOBJ) {
		*(enum fi_wait_obj *) arg =
			cq->wait_fd < 0 ? FI_WAIT_NONE : FI_WAIT_FD;
		return 0;
	}
	if (command != FI_GETWAIT)
		return -FI_ENOSYS;
	if (cq->wait_fd < 0)
		return -FI_ENODATA;
	*(int *) arg = cq->wait_fd;
	return 0;
}

static struct fi_ops cq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.bind = cq_bind,
	.control = cq_control,
};

static int cq_check(const struct fi_cq_attr *attr)
{
	if (attr->flags & ~FI_AFFINITY)
		return -FI_EBADFLAGS;
	if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_FD)
		return -FI_ENOSYS;
	if (attr->format == FI_CQ_FORMAT_TAGGED || attr->wait_cond)
		return -FI_ENOSYS;
	return attr->size > 1u << 24 ? -FI_EINVAL : 0;
}

int sim_cq_open(struct fid_domain *fid, struct fi_cq_attr *attr,
		struct fid_cq **out, void *context)
{
	struct sim_domain *domain = FAB_ENTRY(fid, struct sim_domain, fid);
	uint64_t capacity = 64;
	struct sim_wire *wire;
	struct sim_cq *cq;
	int ret = cq_check(attr);

	if (ret)
		return ret;
	if (attr->format == FI_CQ_FORMAT_UNSPEC)
		attr->format = FI_CQ_FORMAT_DATA;
	while (capacity < attr->size)
		capacity *= 2;
	cq = sim_alloc(sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	cq->wait_fd = cq->event_fd = cq->timer_fd = -1;
	cq->arrivals = sim_alloc(sizeof(cq->arrivals[0]) * capacity);
	ret = cq->arrivals ? 0 : -FI_ENOMEM;
	if (!ret && attr->wait_obj == FI_WAIT_FD)
		ret = cq_open_fds(cq);
	if (ret) {
		cq_close_fds(cq);
		free(cq->arrivals);
		free(cq);
		return ret;
	}
	for (uint64_t i = 0; i < capacity; i++)
		atomic_init(&cq->arrivals[i].turn, i);
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fid_ops;
	cq->fid.ops = &cq_ops;
	cq->domain = domain;
	cq->format = attr->format;
	cq->mask = capacity - 1;
	fab_list_construct(&cq->transmitters);
	attr->size = capacity;
	domain->child_count++;
	wire = sim_wire_enter(&ret);
	fab_list_append(&wire->cqs, &cq->link);
	sim_wire_leave(wire);
	*out = &cq->fid;
	return 0;
}
