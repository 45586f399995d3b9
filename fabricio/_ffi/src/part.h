/* Parts: what one worker does of a transfer, over one path, from the loop's
 * start to its release.
 *
 * T1 DONE is reported exactly once. With quiet = 1 nothing of it is out; with
 *    quiet = 0 (peer lost) QUIET follows when that has become true.
 * T2 after the first error or a cancel no further operation is posted.
 * T3 the region is held from start until quiet.
 * T4 the struct is freed when it was reported, is quiet, has no departure slot,
 *    owes the peer no announcement and the loop released it; the loop's
 *    commands reach the worker in order, so a cancel before the release never
 *    meets freed memory.
 * T5 a confirmed part is done when its operations completed here and the peer
 *    confirmed key and count (confirm.h).
 * T6 the supply is the loop's, and there until the loop releases.
 * T7 when a lane fails and others are left, all chunks are posted again, once
 *    the target has forgotten what it counted.
 * T8 a severed part is over without being at fault: its path failed. Reported as
 *    quiet, its chunks are the loop's, for the part that takes its place. That
 *    one asks first whether all had arrived, if this one was announced as
 *    notified (C8).
 * T9 where there are several paths, a notified part is reported only when the
 *    peer has confirmed it, or that it failed: until then its path may fail. */
#ifndef FAB_PART_H
#define FAB_PART_H

#include "error.h"
#include "list.h"
#include "supply.h"

#include <stdatomic.h>

struct fab_peer;
struct fab_registration;
struct fab_worker;

enum fab_part_severed {
	FAB_PART_FAULTLESS = 1,     /* its path failed, and nothing else */
	FAB_PART_FAILED_BEFORE = 2, /* the peer may have to hear of that */
};

struct fab_part {
	struct fab_link link; /* one of the peer's lists */
	/* Constant after start. */
	uint64_t token;
	uint64_t sequence;
	uint64_t remote_base;
	struct fab_supply *supply;             /* borrowed (T6) */
	struct fab_registration *registration; /* borrowed: held until quiet */
	uint32_t flags;
	uint32_t peer_slot;
	uint32_t part_count; /* of the transfer */
	uint32_t index;      /* which of them */
	uint32_t from_path;  /* moved: where it was announced, and how */
	uint32_t from_immediate;
	uint32_t empty; /* the transfer has no page */
	/* The worker's. */
	struct fab_peer *peer;    /* borrowed; NULL before the worker has it */
	struct fab_cursor cursor; /* of the chunk that it has taken */
	struct fab_cursor end;
	uint64_t
		*chunks; /* owned: those that it has taken, if it may restart */
	uint32_t chunk_count;
	uint32_t chunk_capacity;
	uint32_t replayed;   /* of them, since the last start */
	uint64_t lost_bytes; /* of operations that failed since then */
	uint32_t lost_pages;
	uint64_t posted;    /* operations */
	uint64_t completed; /* of them, well or not */
	uint64_t marked;    /* posted with immediate data */
	uint64_t counted;   /* of them, by the peer, from its last answer */
	uint64_t moved_ns;  /* when it last moved on */
	uint32_t immediate;
	uint32_t queries;   /* answered without any change in the count */
	uint32_t asked;     /* queries since the last answer */
	uint8_t departed;   /* holds a departure slot */
	uint8_t due;        /* the peer must hear of it: NOTIFY, unannounced */
	uint8_t stopped;    /* posts no more (T2) */
	uint8_t dry;        /* the supply had nothing left */
	uint8_t keeps;      /* chunks: there are other lanes or paths */
	uint8_t restarting; /* posts no more until it begins again (T7) */
	uint8_t announced;
	uint8_t told;      /* announced since its start, if not any more */
	uint8_t moved;     /* begins by asking (T8) */
	uint8_t severed;   /* enum fab_part_severed */
	uint8_t hopeless;  /* the peer does not answer (T9) */
	uint8_t uncounted; /* an operation failed: the count is unknown */
	uint8_t reported;
	uint8_t quiet;          /* registration let go */
	uint8_t released;       /* by the loop */
	struct fab_error error; /* the first one; code 0: none */
	/* The worker writes, the loop reads, both relaxed. */
	_Atomic uint64_t bytes_done;
	_Atomic uint64_t pages_done;
	/* Constant: what each lane's operations name. */
	uint64_t remote_keys[];
};

/* What its remote key must grant: enum fab_access. */
static inline uint32_t fab_part_access(const struct fab_part *part)
{
	return part->flags & FAB_TRANSFER_READ ? FAB_ACCESS_REMOTE_READ :
						 FAB_ACCESS_REMOTE_WRITE;
}

/* Whether it has anything to post, if need be from a new chunk. [worker] */
int fab_part_more(struct fab_part *part);

/* Commands. [worker] */
void fab_part_begin(struct fab_worker *worker, struct fab_part *part);
void fab_part_abort(struct fab_worker *worker, struct fab_part *part);
void fab_part_discard(struct fab_worker *worker, struct fab_part *part);

/* A lane failed under one of its operations; there are others. [worker] */
void fab_part_restart(struct fab_worker *worker, struct fab_part *part,
		      const struct fab_error *error);

/* Stop it with this error, unless it has one or is over. [worker] */
void fab_part_fail(struct fab_worker *worker, struct fab_part *part,
		   const struct fab_error *error);

/* Operations of it completed; and they did so well. [worker] */
void fab_part_moved(struct fab_worker *worker, struct fab_part *part,
		    uint32_t operations, uint64_t bytes, uint32_t pages);
void fab_part_succeeded(struct fab_worker *worker, struct fab_part *part,
			uint32_t operations, uint64_t bytes, uint32_t pages);

/* The peer answered an announcement. [worker] */
void fab_part_confirmed(struct fab_worker *worker, struct fab_part *part,
			int32_t status, uint64_t counted);

/* Give a departure slot to those who wait, oldest first. [worker] */
void fab_part_admit(struct fab_worker *worker, struct fab_peer *peer);

/* Announce, report and free what can be. May free the transfer. [worker] */
void fab_part_settle(struct fab_worker *worker, struct fab_part *part);

/* Report now although operations are out (T1). May free it. [worker] */
void fab_part_forsake(struct fab_worker *worker, struct fab_part *part);

/* The peer is gone: no announcement leaves and no confirmation comes. Ends it
 * with this error unless it is over. May free it. [worker] */
void fab_part_orphan(struct fab_worker *worker, struct fab_part *part,
		     const struct fab_error *error);

/* Free what the loop never released. [loop], after the worker ended */
void fab_part_free_list(struct fab_link *list);

/* Nothing has moved for long: ask the peer again, or give up. May free it.
 * [worker] */
void fab_part_tick(struct fab_worker *worker, struct fab_part *part);

#endif
