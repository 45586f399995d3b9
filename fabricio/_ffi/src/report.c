/* What the worker tells the loop. */
#include "frame.h"
#include "part.h"
#include "worker.h"

#include <sched.h>

/* Completions that the ring could not take go first. */
void fab_worker_flush(struct fab_worker *worker)
{
	struct fab_completion *first;

	while ((first = fab_queue_first(&worker->deferred)) &&
	       !fab_ring_push(&worker->completions, first)) {
		fab_queue_drop(&worker->deferred);
		worker->reported = 1;
	}
	if (!worker->reported)
		return;
	worker->reported = 0;
	if (fab_wakeup_ring(worker->doorbell))
		fab_worker_count(&worker->statistics.wakeups, 1);
}

static void worker_tell(struct fab_worker *worker,
			struct fab_completion *completion)
{
	completion->worker = worker->index;
	worker->reported = 1;
	if (!worker->deferred.count &&
	    !fab_ring_push(&worker->completions, completion))
		return;
	/* Out of memory: nothing may be dropped, so wait for the loop. */
	while (fab_queue_push(&worker->deferred, completion) &&
	       !atomic_load_explicit(&worker->closing, memory_order_relaxed)) {
		fab_worker_flush(worker);
		sched_yield();
	}
}

void fab_worker_report(struct fab_worker *worker, uint32_t kind, uint32_t peer,
		       uint64_t token, const struct fab_error *error)
{
	struct fab_completion completion = {
		.kind = kind,
		.peer = peer,
		.token = token,
	};

	if (error && error->code) {
		completion.status = error->code;
		completion.error = fab_error_copy(error);
	}
	worker_tell(worker, &completion);
}

void fab_worker_report_broken(struct fab_worker *worker,
			      const struct fab_peer *peer,
			      const struct fab_error *error)
{
	struct fab_completion completion = {
		.kind = peer->severed ? FAB_PATH_FAILED : FAB_PEER_FAILED,
		.peer = peer->route,
		.sequence = peer->path,
		.count = worker->now_ns - peer->heard_ns,
		.status = error->code,
		.error = fab_error_copy(error),
	};

	worker_tell(worker, &completion);
}

void fab_worker_report_done(struct fab_worker *worker,
			    const struct fab_part *part, int quiet)
{
	struct fab_completion completion = {
		.kind = FAB_TRANSFER_DONE,
		.peer = part->peer ? part->peer->route : FAB_NO_PEER,
		.token = part->token,
		.sequence = part->sequence,
		.count = part->counted,
		.bytes = part->index,
		.quiet = (uint32_t) quiet,
		.severed = part->severed,
		.status = part->error.code,
	};

	if (part->error.code)
		completion.error = fab_error_copy(&part->error);
	worker_tell(worker, &completion);
}

void fab_worker_report_added(struct fab_worker *worker,
			     const struct fab_peer_spec *spec, uint32_t slot,
			     const struct fab_error *error)
{
	struct fab_completion completion = {
		.kind = FAB_PEER_ADDED,
		.peer = slot,
		.token = spec->route,
		.sequence = spec->path,
		.status = error->code,
	};

	if (error->code)
		completion.error = fab_error_copy(error);
	worker_tell(worker, &completion);
}

void fab_worker_report_arrival(struct fab_worker *worker,
			       const struct fab_peer *peer,
			       const struct fab_arrival *arrival,
			       int32_t status)
{
	struct fab_completion completion = {
		.kind = FAB_TRANSFER_ARRIVED,
		.peer = peer->route,
		.token = arrival->part,
		.sequence = arrival->sequence,
		.count = arrival->parts,
		.status = status,
	};

	worker_tell(worker, &completion);
}

void fab_worker_report_frame(struct fab_worker *worker, uint32_t peer,
			     struct fab_frame *frame)
{
	struct fab_completion completion = {
		.kind = FAB_FRAME_RECEIVED,
		.peer = peer,
		.data = frame->payload,
		.bytes = frame->bytes,
	};

	worker_tell(worker, &completion);
}
