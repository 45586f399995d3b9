/* Completion queue. Its reader lands the operations of the endpoints that
 * transmit through it, so their completions go straight into the reader's
 * buffer; what others cause (messages, immediate data) comes through a ring. */
#ifndef SIM_CQ_H
#define SIM_CQ_H

#include "domain.h"

#include <rdma/fi_eq.h>

/* What becomes of one completion. */
struct sim_event {
	void *context;
	uint64_t flags;
	size_t length;
	void *buffer;
	uint64_t data;
	size_t overflow; /* bytes that found no room */
	struct sim_verdict verdict;
};

struct sim_arrival {
	_Alignas(SIM_CACHE_LINE) _Atomic uint64_t turn;
	struct sim_event event;
};

/* Multi-producer, single-consumer ring of arrivals.
 * C1 slot s is the producer's whose ticket t has t mod capacity == s while its
 *    turn is t, and the reader's while its turn is t + 1. Tickets are taken by
 *    compare-and-swap of `tail`; a turn is stored with release (or stronger)
 *    after the slot was filled or emptied, and loaded with acquire.
 * C2 a ticket is taken only when its slot is free: a full ring refuses, and who
 *    was refused keeps the arrival. Nothing is dropped.
 * C3 the reader stores `armed`, then looks for arrivals; a producer stores the
 *    turn, then looks at `armed`: all four sequentially consistent, so that one
 *    of the two sees the other. Whoever takes `armed` down writes the eventfd.
 */
struct sim_cq {
	struct fid_cq fid;
	struct fab_link link;      /* in the wire's CQs; its mutex */
	struct sim_domain *domain; /* shared; counts us */
	enum fi_cq_format format;
	uint32_t binding_count;       /* endpoints, once for each direction */
	struct fab_link transmitters; /* struct sim_ep */
	struct sim_arrival *arrivals; /* owned */
	uint64_t mask;                /* capacity - 1 */
	uint64_t head;                /* the reader's, as are the next two */
	uint32_t odd;                 /* this is an odd call */
	int failed;                   /* `failure` waits for fi_cq_readerr */
	int wait_fd;                  /* epoll of the two below; -1: none */
	int event_fd;                 /* owned, as are the other two */
	int timer_fd;                 /* next landing */
	struct sim_event failure;
	_Atomic uint32_t overrun; /* scripted; writer: sim_cq_overrun */
	_Alignas(SIM_CACHE_LINE) _Atomic uint64_t tail;  /* producers' */
	_Alignas(SIM_CACHE_LINE) _Atomic uint32_t armed; /* C3 */
};

int sim_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		struct fid_cq **cq, void *context);

/* Add an arrival; -FI_EAGAIN if there is no room. The caller keeps the CQ from
 * closing. [any] */
int sim_cq_push(struct sim_cq *cq, const struct sim_event *event);
/* Wake whoever sleeps on it. [any] */
void sim_cq_rouse(struct sim_cq *cq);
/* It is overrun from now on, for ever. [any] */
void sim_cq_overrun(struct sim_cq *cq);

/* 0 if it may be slept on, else -FI_EAGAIN. [domain] */
int sim_cq_trywait(struct sim_cq *cq);

/* Put one completion at `place` of a reader's buffer. [domain] */
static inline void sim_cq_write(const struct sim_cq *cq, void *buffer,
				size_t place, const struct sim_event *event)
{
	switch (cq->format) {
	case FI_CQ_FORMAT_DATA:
		((struct fi_cq_data_entry *) buffer)[place] =
			(struct fi_cq_data_entry) {
				.op_context = event->context,
				.flags = event->flags,
				.len = event->length,
				.buf = event->buffer,
				.data = event->data,
		};
		break;
	case FI_CQ_FORMAT_MSG:
		((struct fi_cq_msg_entry *) buffer)[place] =
			(struct fi_cq_msg_entry) {
				.op_context = event->context,
				.flags = event->flags,
				.len = event->length,
		};
		break;
	default:
		((struct fi_cq_entry *) buffer)[place].op_context =
			event->context;
		break;
	}
}

#endif
