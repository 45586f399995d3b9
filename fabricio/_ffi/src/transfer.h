/* Transfers: from the loop's start to its release.
 *
 * T1 DONE is reported exactly once. With quiet = 1 nothing of it is out; with
 *    quiet = 0 (peer lost) QUIET follows when that has become true.
 * T2 after the first error or a cancel no further operation is posted.
 * T3 the region is held from start until quiet.
 * T4 the struct is freed when it was reported, is quiet, has no departure slot,
 *    owes the peer no announcement and the loop released it; the loop's
 *    commands reach the worker in order, so a cancel before the release never
 *    meets freed memory.
 * T5 a confirmed transfer is done when its operations completed here and the
 *    peer confirmed key and count (confirm.h). */
#ifndef FAB_TRANSFER_H
#define FAB_TRANSFER_H

#include "error.h"
#include "list.h"
#include "pages.h"

#include <stdatomic.h>

struct fab_peer;
struct fab_region;
struct fab_worker;

struct fab_transfer {
	struct fab_link link; /* one of the peer's lists */
	/* Constant after start. */
	uint64_t token;
	uint64_t sequence;
	uint64_t remote_base;
	uint64_t remote_key;
	struct fab_pages pages;    /* its indices lie behind this struct */
	struct fab_region *region; /* borrowed: held until quiet */
	uint32_t flags;
	uint32_t peer_slot;
	/* The worker's. */
	struct fab_peer *peer; /* borrowed; NULL before the worker has it */
	struct fab_cursor cursor;
	uint64_t posted;    /* operations */
	uint64_t completed; /* of them, well or not */
	uint64_t marked;    /* posted with immediate data */
	uint64_t counted;   /* of them, by the peer, from its last answer */
	uint64_t moved_ns;  /* when it last moved on */
	uint32_t immediate;
	uint32_t queries; /* answered without any change in the count */
	uint32_t asked;   /* queries since the last answer */
	uint8_t departed; /* holds a departure slot */
	uint8_t due;      /* the peer must hear of it: NOTIFY, unannounced */
	uint8_t stopped;  /* posts no more (T2) */
	uint8_t announced;
	uint8_t uncounted; /* an operation failed: the count is unknown */
	uint8_t reported;
	uint8_t quiet;          /* region let go */
	uint8_t released;       /* by the loop */
	struct fab_error error; /* the first one; code 0: none */
	/* The worker writes, the loop reads, both relaxed. */
	_Atomic uint64_t bytes_done;
	_Atomic uint64_t pages_done;
};

/* Commands. [worker] */
void fab_transfer_begin(struct fab_worker *worker,
			struct fab_transfer *transfer);
void fab_transfer_abort(struct fab_worker *worker,
			struct fab_transfer *transfer);
void fab_transfer_discard(struct fab_worker *worker,
			  struct fab_transfer *transfer);

/* Stop it with this error, unless it has one or is over. [worker] */
void fab_transfer_fail(struct fab_worker *worker, struct fab_transfer *transfer,
		       const struct fab_error *error);

/* One operation of it completed. [worker] */
void fab_transfer_moved(struct fab_worker *worker,
			struct fab_transfer *transfer, uint64_t bytes,
			uint32_t pages);

/* The peer answered an announcement. [worker] */
void fab_transfer_confirmed(struct fab_worker *worker,
			    struct fab_transfer *transfer, int32_t status,
			    uint64_t counted);

/* Give a departure slot to those who wait, oldest first. [worker] */
void fab_transfer_admit(struct fab_worker *worker, struct fab_peer *peer);

/* Announce, report and free what can be. May free the transfer. [worker] */
void fab_transfer_settle(struct fab_worker *worker,
			 struct fab_transfer *transfer);

/* Report now although operations are out (T1). May free it. [worker] */
void fab_transfer_forsake(struct fab_worker *worker,
			  struct fab_transfer *transfer);

/* The peer is gone: no announcement leaves and no confirmation comes. Ends it
 * with this error unless it is over. May free it. [worker] */
void fab_transfer_orphan(struct fab_worker *worker,
			 struct fab_transfer *transfer,
			 const struct fab_error *error);

/* Free what the loop never released. [loop], after the worker ended */
void fab_transfer_free_list(struct fab_link *list);

/* Nothing has moved for long: ask the peer again, or give up. May free it.
 * [worker] */
void fab_transfer_tick(struct fab_worker *worker,
		       struct fab_transfer *transfer);

#endif
