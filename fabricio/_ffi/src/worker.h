/* Worker: one thread that alone opens, uses and closes its lanes, but for one
 * short cut.
 *
 * Each pass: take commands, read the CQs, post, report. Then spin, or sleep.
 *
 * K1 whoever touches a worker's lanes, peers or transfers holds its lock. The
 *    worker holds it all the time, save while it yields or sleeps.
 * K2 the loop takes it only by trylock, for one frame, when no command waits:
 *    the frame leaves without a change of threads, and in order. It never
 *    posts pages: some providers copy them within the call.
 * K3 who holds the lock is the one consumer of commands and the one producer
 *    of completions.
 * Fields are the lock holder's unless marked. */
#ifndef FAB_WORKER_H
#define FAB_WORKER_H

#include "command.h"
#include "error.h"
#include "lane.h"
#include "list.h"
#include "peer.h"
#include "queue.h"
#include "ring.h"
#include "wakeup.h"

#include <pthread.h>
#include <stdatomic.h>

struct fab_arrival;
struct fab_part;

/* How long something failed or closed is waited for before its memory is
 * called not quiet. */
#define FAB_GRACE_NS 1000000000ull

/* struct fab_statistics, as the worker writes it and anyone reads it. */
struct fab_counters {
	_Atomic uint64_t operations_posted;
	_Atomic uint64_t operations_completed;
	_Atomic uint64_t operations_failed;
	_Atomic uint64_t again;
	_Atomic uint64_t bytes_written;
	_Atomic uint64_t bytes_read;
	_Atomic uint64_t pages;
	_Atomic uint64_t immediates_received;
	_Atomic uint64_t frames_sent;
	_Atomic uint64_t frames_received;
	_Atomic uint64_t transfers_confirmed;
	_Atomic uint64_t stale_frames;
	_Atomic uint64_t stale_immediates;
	_Atomic uint64_t malformed_frames;
	_Atomic uint64_t stray_completions;
	_Atomic uint64_t lanes_failed;
	_Atomic uint64_t parts_restarted;
	_Atomic uint64_t sleeps;
	_Atomic uint64_t wakeups;
};

struct fab_worker {
	pthread_mutex_t lock; /* K1 */
	/* Shared with the loop, each side as its own header says. */
	struct fab_ring commands;    /* loop -> worker */
	struct fab_ring completions; /* worker -> loop */
	struct fab_wakeup sleeper;   /* loop rouses, worker sleeps */
	struct fab_wakeup *doorbell; /* borrowed from engine; worker rings */
	_Atomic uint32_t
		deferring;        /* worker sets: rouse me when you made room */
	_Atomic uint32_t backlog; /* loop sets: ring me when there is room */
	_Atomic uint32_t closing; /* loop sets: nobody reaps any more */
	struct fab_counters statistics; /* worker writes, loop reads */
	/* Constant once FAB_WORKER_OPENED was reaped. */
	struct fab_lane *lanes; /* owned array */
	uint32_t lane_count;
	uint32_t index;
	uint64_t token; /* by which other processes know this one: cma.h */
	struct fab_options options; /* strings borrowed from the engine */
	struct fab_plan plan;       /* likewise */
	/* The worker's. */
	pthread_t thread;
	struct fab_queue
		deferred;        /* completions the full ring could not take */
	struct fab_peer **peers; /* owned; a slot number is an index */
	uint32_t peer_count;
	uint32_t peer_capacity;
	struct fab_link free_peers; /* oldest first */
	uint32_t free_peer_count;
	struct fab_link ready;   /* peers with something to post, in turn */
	struct fab_link regions; /* registered ones */
	struct fab_link strays;  /* transfers without a peer */
	struct fab_link watches; /* struct fab_watch, owned */
	uint64_t outstanding;    /* frames and transfers not over */
	uint32_t removing;       /* peers in FAB_PEER_REMOVING */
	uint32_t watched;        /* peers with a heartbeat */
	uint32_t failed;
	uint32_t stopping;
	uint64_t stop_ns;  /* when waiting for peers ends */
	uint32_t reported; /* something to tell since the last ring */
	uint64_t now_ns;
	uint64_t busy_ns;      /* when something last happened */
	uint64_t tick_ns;      /* when the next tick is due */
	uint64_t look_ns;      /* when to look for sockets; connections.h */
	uint64_t look_wait_ns; /* how long after a vain look */
	uint64_t nap_ns;       /* next sleep without a wait fd */
	_Atomic uint64_t hello_bytes; /* held by hellos; as peer.held_bytes */
};

/* Start the thread. [loop] */
int fab_worker_start(struct fab_worker *worker);
/* Wait for its end; it must have been told to stop. [loop] */
void fab_worker_join(struct fab_worker *worker);
/* Free what it owned. [loop] */
void fab_worker_destruct(struct fab_worker *worker);

/* The peer in that slot: any state but FREE; or only one that still talks. */
struct fab_peer *fab_worker_slot(struct fab_worker *worker, uint32_t slot);
struct fab_peer *fab_worker_peer(struct fab_worker *worker, uint32_t slot);

/* Move what waits into the ring, and ring the loop if there is news. [worker] */
void fab_worker_flush(struct fab_worker *worker);

/* Tell the loop. `error` may be NULL or hold code 0. [worker] */
void fab_worker_report(struct fab_worker *worker, uint32_t kind, uint32_t peer,
		       uint64_t token, const struct fab_error *error);
/* The peer failed, or this path to it. */
void fab_worker_report_broken(struct fab_worker *worker,
			      const struct fab_peer *peer,
			      const struct fab_error *error);
void fab_worker_report_done(struct fab_worker *worker,
			    const struct fab_part *part, int quiet);
void fab_worker_report_added(struct fab_worker *worker,
			     const struct fab_peer_spec *spec, uint32_t slot,
			     const struct fab_error *error);
void fab_worker_report_arrival(struct fab_worker *worker,
			       const struct fab_peer *peer,
			       const struct fab_arrival *arrival,
			       int32_t status);
void fab_worker_report_frame(struct fab_worker *worker, uint32_t peer,
			     struct fab_frame *frame);

/* A CQ is dead, or memory is out where nothing else helps: break everything
 * and say so once. [worker] */
void fab_worker_fail(struct fab_worker *worker, int code, const char *call,
		     const char *text);

/* Queue a frame and post it at once, if the lock is free and no command waits.
 * 0 if the frame was taken over, else -FI_EAGAIN. [loop] */
int fab_worker_express(struct fab_worker *worker, uint32_t slot,
		       struct fab_outgoing *frame);

/* Take one command. [worker] */
void fab_worker_execute(struct fab_worker *worker,
			const struct fab_command *command);

/* Post what can be posted, each ready peer one turn. Returns how much. */
uint32_t fab_post_pass(struct fab_worker *worker);
/* Post the peer's frames. 0 when none is left that may leave now. */
int fab_post_frames(struct fab_worker *worker, struct fab_peer *peer,
		    uint32_t *posted);
/* Read the lane's CQ. Returns how many entries. */
uint32_t fab_reap_pass(struct fab_worker *worker, struct fab_lane *lane);
/* The peer has failed, and its process has ended: what it had completed is
 * reaped, and what is still out for it buried (op.h, O1): it never completes,
 * and touches no memory. */
void fab_reap_bury(struct fab_worker *worker, struct fab_peer *peer);

/* Add to a counter that only this worker writes. */
static inline void fab_worker_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(
		counter,
		atomic_load_explicit(counter, memory_order_relaxed) + n,
		memory_order_relaxed);
}

#endif
