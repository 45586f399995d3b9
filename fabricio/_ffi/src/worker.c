#include "worker.h"

#include "connections.h"
#include "frame.h"
#include "part.h"
#include "question.h"
#include "registration.h"

#include <errno.h>
#include <poll.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define COMMANDS_IN_A_PASS 256
#define MILLISECOND_NS     1000000ull
#define TICK_MIN_NS        (5 * MILLISECOND_NS)
#define TICK_MAX_NS        (250 * MILLISECOND_NS)
/* Sleep while something waits to be posted: the provider said EAGAIN, and not
 * every reason for that wakes the CQ's fd. */
#define RETRY_NS     MILLISECOND_NS
#define FIRST_NAP_NS 10000ull
/* Longest nap while operations are out and the CQ has no wait fd. */
#define BUSY_NAP_NS 50000ull
#define FOREVER     UINT64_MAX

static uint64_t worker_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000ull + (uint64_t) now.tv_nsec;
}

struct fab_peer *fab_worker_slot(struct fab_worker *worker, uint32_t slot)
{
	if (slot >= worker->peer_count ||
	    worker->peers[slot]->state == FAB_PEER_FREE)
		return NULL;
	return worker->peers[slot];
}

struct fab_peer *fab_worker_peer(struct fab_worker *worker, uint32_t slot)
{
	struct fab_peer *peer = fab_worker_slot(worker, slot);

	if (!peer ||
	    (peer->state != FAB_PEER_OPEN && peer->state != FAB_PEER_ATTACHED))
		return NULL;
	return peer;
}

void fab_worker_fail(struct fab_worker *worker, int code, const char *call,
		     const char *text)
{
	struct fab_error error;

	if (worker->failed)
		return;
	worker->failed = 1;
	fab_error_set(&error, code, call, 0, text);
	fab_worker_report(worker, FAB_WORKER_FAILED, FAB_NO_PEER, 0, &error);
	for (uint32_t i = 0; i < worker->peer_count; i++)
		fab_peer_break_by(worker, worker->peers[i], &error);
}

static void worker_stop(struct fab_worker *worker)
{
	worker->stopping = 1;
	worker->stop_ns = worker->now_ns + FAB_GRACE_NS;
	for (uint32_t i = 0; i < worker->peer_count; i++)
		fab_peer_close(worker, worker->peers[i]);
}

void fab_worker_execute(struct fab_worker *worker,
			const struct fab_command *command)
{
	struct fab_peer *peer = fab_worker_slot(worker, command->peer);
	struct fab_part *part = command->object;

	switch (command->kind) {
	case FAB_COMMAND_REGISTER:
		fab_registration_open(worker, command->object);
		break;
	case FAB_COMMAND_DEREGISTER:
		fab_registration_close(worker, command->object);
		break;
	case FAB_COMMAND_PEER_ADD:
		fab_peer_open(worker, command->object);
		break;
	case FAB_COMMAND_PEER_ATTACH:
		if (peer)
			fab_peer_link(worker, peer, command->number,
				      command->cookie, command->heartbeat_ns);
		break;
	case FAB_COMMAND_PEER_BREAK:
		if (peer)
			fab_peer_break_by(worker, peer, command->object);
		free(command->object);
		break;
	case FAB_COMMAND_PATH_BREAK:
		if (peer)
			fab_peer_sever(worker, peer, command->object);
		free(command->object);
		break;
	case FAB_COMMAND_QUESTION:
		fab_question_take(worker, peer, command->object);
		break;
	case FAB_COMMAND_PEER_REMOVE:
		if (peer)
			fab_peer_close(worker, peer);
		break;
	case FAB_COMMAND_FRAME:
		if (peer)
			fab_peer_queue(worker, peer, command->object);
		else
			free(command->object);
		break;
	case FAB_COMMAND_WATCH:
		fab_connections_watch(worker, command->object);
		break;
	case FAB_COMMAND_TRANSFER:
		fab_part_begin(worker, part);
		break;
	case FAB_COMMAND_CANCEL:
		fab_part_abort(worker, part);
		break;
	case FAB_COMMAND_RELEASE:
		peer = part->peer;
		fab_part_discard(worker, part);
		if (peer)
			fab_peer_settle(worker, peer);
		break;
	case FAB_COMMAND_STOP:
		worker_stop(worker);
		break;
	default:
		break;
	}
}

static uint32_t worker_take_commands(struct fab_worker *worker)
{
	struct fab_command command;
	uint32_t taken = 0;

	while (taken < COMMANDS_IN_A_PASS &&
	       !fab_ring_pop(&worker->commands, &command)) {
		fab_worker_execute(worker, &command);
		taken++;
	}
	if (atomic_load_explicit(&worker->backlog, memory_order_relaxed) &&
	    atomic_exchange_explicit(&worker->backlog, 0, memory_order_acq_rel))
		worker->reported = 1;
	return taken;
}

static void worker_listen(struct fab_worker *worker, struct fab_lane *lane,
			  uint64_t interval)
{
	/* Nobody looked meanwhile. */
	if (lane->asked_ns && worker->now_ns > worker->tick_ns + interval)
		lane->asked_ns += worker->now_ns - worker->tick_ns;
	if (!fab_lane_hears(lane, worker->now_ns,
			    worker->options.peer_timeout_ns / 2))
		fab_worker_fail(worker, -FI_ETIMEDOUT, "fi_cq_read",
				"nothing arrives any more: a process that was "
				"killed or stopped while it sent holds a place "
				"in the queue");
}

static void worker_tick(struct fab_worker *worker)
{
	uint64_t interval = worker->options.peer_timeout_ns / 16;

	if (interval < TICK_MIN_NS)
		interval = TICK_MIN_NS;
	if (interval > TICK_MAX_NS)
		interval = TICK_MAX_NS;
	/* Who was stopped, or had no CPU, heard nobody meanwhile. */
	if (worker->watched && worker->tick_ns &&
	    worker->now_ns > worker->tick_ns + interval)
		fab_peer_excuse(worker, worker->now_ns - worker->tick_ns);
	for (uint32_t i = 0; i < worker->lane_count && !worker->failed; i++)
		worker_listen(worker, &worker->lanes[i], interval);
	worker->tick_ns = worker->now_ns + interval;
	for (uint32_t i = 0; i < worker->peer_count; i++) {
		if (worker->peers[i]->state != FAB_PEER_FREE)
			fab_peer_tick(worker, worker->peers[i]);
	}
	fab_connections_tick(worker, interval);
}

/* 1 if the CQs may be slept on, 0 if one has something to do, and -1 if one
 * has no wait fd. Fills fds behind the first. */
static int worker_prepare_fds(struct fab_worker *worker, struct pollfd *fds)
{
	for (uint32_t i = 0; i < worker->lane_count; i++) {
		struct fab_lane *lane = &worker->lanes[i];
		struct fid *fid = &lane->cq->fid;

		fds[1 + i].fd = -1;
		if (worker->failed)
			continue; /* nobody reads it any more */

		if (lane->cq_fd < 0)
			return -1;
		fds[1 + i].fd = lane->cq_fd;
		fds[1 + i].events = POLLIN;
		if (fi_trywait(lane->fabric, &fid, 1))
			return 0;
	}
	return 1;
}

/* How long the worker may sleep if nothing wakes it. */
static uint64_t worker_patience(const struct fab_worker *worker)
{
	uint64_t until_tick = worker->tick_ns > worker->now_ns ?
				      worker->tick_ns - worker->now_ns :
				      0;

	if (!fab_list_empty(&worker->ready))
		return until_tick < RETRY_NS ? until_tick : RETRY_NS;
	if (worker->outstanding || worker->removing || worker->stopping ||
	    worker->watched || !fab_list_empty(&worker->watches))
		return until_tick;
	return FOREVER;
}

/* 1 if nothing is deferred, or the loop will rouse us once it has made room: the
 * ring is full although the flag is up, so the loop has reaping to do and meets
 * the flag then. */
static int worker_may_defer(struct fab_worker *worker)
{
	if (!worker->deferred.count)
		return 1;
	(void) atomic_exchange_explicit(&worker->deferring, 1,
					memory_order_acq_rel);
	return fab_ring_full(&worker->completions);
}

static void worker_sleep(struct fab_worker *worker)
{
	struct pollfd fds[1 + worker->lane_count];
	struct timespec timeout;
	uint64_t patience = worker_patience(worker);
	nfds_t count = 1;
	int ready;

	fab_wakeup_prepare(&worker->sleeper);
	ready = fab_ring_empty(&worker->commands) &&
				!atomic_load_explicit(&worker->backlog,
						      memory_order_relaxed) &&
				worker_may_defer(worker) ?
			worker_prepare_fds(worker, fds) :
			0;
	if (ready > 0) {
		count += worker->lane_count;
	} else if (ready < 0) {
		uint64_t limit = worker->outstanding ? BUSY_NAP_NS :
						       worker->options.nap_ns;

		if (worker->nap_ns > limit)
			worker->nap_ns = limit;
		if (patience > worker->nap_ns)
			patience = worker->nap_ns;
		worker->nap_ns *= 2;
	}
	if (ready) {
		fds[0].fd = worker->sleeper.fd;
		fds[0].events = POLLIN;
		timeout.tv_sec = (time_t) (patience / 1000000000ull);
		timeout.tv_nsec = (long) (patience % 1000000000ull);
		fab_worker_count(&worker->statistics.sleeps, 1);
		pthread_mutex_unlock(&worker->lock);
		(void) ppoll(fds, count, patience == FOREVER ? NULL : &timeout,
			     NULL);
		pthread_mutex_lock(&worker->lock);
	}
	fab_wakeup_finish(&worker->sleeper);
}

/* One pass. Returns 1 if anything happened. */
static int worker_pass(struct fab_worker *worker)
{
	uint32_t happened = worker_take_commands(worker);

	if (!worker->failed) {
		happened += fab_post_pass(worker);
		for (uint32_t i = 0; i < worker->lane_count; i++)
			happened += fab_reap_pass(worker, &worker->lanes[i]);
	}
	if (worker->now_ns >= worker->tick_ns)
		worker_tick(worker);
	fab_worker_flush(worker);
	return happened != 0;
}

static void worker_rest(struct fab_worker *worker)
{
	int busy = worker->options.polling == FAB_POLLING_BUSY;

	if (worker->failed || (!busy && worker->now_ns - worker->busy_ns >=
						worker->options.spin_ns)) {
		worker_sleep(worker);
		return;
	}
	pthread_mutex_unlock(&worker->lock);
	if (!busy)
		sched_yield(); /* whoever shares this core goes first */
	pthread_mutex_lock(&worker->lock);
}

int fab_worker_express(struct fab_worker *worker, uint32_t slot,
		       struct fab_outgoing *frame)
{
	struct fab_peer *peer;
	uint32_t posted = 0;
	int ret = -FI_EAGAIN;

	if (pthread_mutex_trylock(&worker->lock))
		return ret;
	peer = fab_worker_peer(worker, slot);
	if (peer && fab_ring_empty(&worker->commands)) {
		/* So that the worker, once roused, spins for the answer. */
		worker->now_ns = worker->busy_ns = worker_clock();
		worker->nap_ns = FIRST_NAP_NS;
		fab_peer_queue(worker, peer, frame);
		(void) fab_post_frames(worker, peer, &posted);
		fab_worker_flush(worker);
		ret = 0;
	}
	pthread_mutex_unlock(&worker->lock);
	return ret;
}

/* The provider for shared memory installs signal handlers of its own, which
 * would unlink its files and outlive us: put back what was there. */
static void worker_open_lanes(struct fab_worker *worker)
{
	struct sigaction before[SIGRTMIN];
	struct fab_error error = {0};
	uint32_t opened;

	for (int i = 1; i < SIGRTMIN; i++)
		sigaction(i, NULL, &before[i]);
	for (opened = 0; opened < worker->plan.lane_count; opened++) {
		if (fab_lane_open(&worker->lanes[opened], &worker->options,
				  &worker->plan, opened, &error))
			break;
	}
	for (int i = 1; i < SIGRTMIN; i++) {
		struct sigaction now;

		if (!sigaction(i, NULL, &now) &&
		    now.sa_handler != before[i].sa_handler)
			sigaction(i, &before[i], NULL);
	}
	for (uint32_t i = 0; i < opened; i++)
		worker->lanes[i].heard_ns = worker->now_ns;
	worker->lane_count = opened;
	if (error.code)
		worker->failed = 1;
	fab_worker_report(worker, FAB_WORKER_OPENED, FAB_NO_PEER, 0, &error);
}

static void worker_close_lanes(struct fab_worker *worker)
{
	struct fab_link *link = worker->regions.next;

	for (; link != &worker->regions; link = link->next)
		fab_registration_unregister(
			FAB_ENTRY(link, struct fab_registration, link));
	for (uint32_t i = 0; i < worker->peer_count; i++)
		fab_peer_forget(worker, worker->peers[i]);
	for (uint32_t i = 0; i < worker->lane_count; i++)
		fab_lane_close(&worker->lanes[i]);
	/* Now nothing is out any more, whatever the provider left open. */
	for (uint32_t i = 0; i < worker->peer_count; i++) {
		if (worker->peers[i]->state != FAB_PEER_FREE)
			fab_peer_quiesce(worker, worker->peers[i]);
	}
	worker->lane_count = 0;
	fab_worker_report(worker, FAB_WORKER_CLOSED, FAB_NO_PEER, 0, NULL);
	fab_worker_flush(worker);
}

/* Before the lanes open, so that their memory is near. A CPU that is not ours
 * to use was refused by the loop; one that has gone since is no reason to fail. */
static void worker_pin(const struct fab_worker *worker)
{
	cpu_set_t cpus;

	if (worker->plan.cpu < 0)
		return;
	CPU_ZERO(&cpus);
	CPU_SET((size_t) worker->plan.cpu, &cpus);
	(void) pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
}

static void *worker_run(void *argument)
{
	struct fab_worker *worker = argument;
	char name[16];

	snprintf(name, sizeof(name), "fab-w%u", worker->index);
	prctl(PR_SET_NAME, name, 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	worker_pin(worker);
	/* The loop waits for FAB_WORKER_OPENED before it pushes anything. */
	fab_ring_settle(&worker->commands);
	fab_ring_settle(&worker->completions);
	pthread_mutex_lock(&worker->lock);
	worker->now_ns = worker_clock();
	worker->nap_ns = FIRST_NAP_NS;
	worker_open_lanes(worker);
	while (!worker->stopping ||
	       (worker->removing && worker->now_ns < worker->stop_ns)) {
		int happened = worker_pass(worker);

		worker->now_ns = worker_clock();
		if (happened) {
			worker->busy_ns = worker->now_ns;
			worker->nap_ns = FIRST_NAP_NS;
		} else {
			worker_rest(worker);
			worker->now_ns = worker_clock();
		}
	}
	worker_close_lanes(worker);
	/* What the ring could not take yet goes when the loop makes room. */
	while (worker->deferred.count &&
	       !atomic_load_explicit(&worker->closing, memory_order_relaxed)) {
		fab_worker_flush(worker);
		sched_yield();
	}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

int fab_worker_start(struct fab_worker *worker)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&worker->thread, NULL, worker_run, worker);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -ret;
}

void fab_worker_join(struct fab_worker *worker)
{
	pthread_join(worker->thread, NULL);
}

void fab_worker_destruct(struct fab_worker *worker)
{
	for (uint32_t i = 0; i < worker->peer_count; i++)
		fab_peer_destruct(worker->peers[i]);
	fab_part_free_list(&worker->strays);
	while (!fab_list_empty(&worker->watches))
		fab_watch_free(FAB_ENTRY(worker->watches.next, struct fab_watch,
					 link));
	while (!fab_list_empty(&worker->regions)) {
		struct fab_link *link = worker->regions.next;

		fab_list_remove(link);
		free(FAB_ENTRY(link, struct fab_registration, link));
	}
	pthread_mutex_destroy(&worker->lock);
	fab_ring_destruct(&worker->commands);
	fab_ring_destruct(&worker->completions);
	fab_queue_destruct(&worker->deferred);
	fab_wakeup_close(&worker->sleeper);
	free(worker->peers);
	free(worker->lanes);
}
