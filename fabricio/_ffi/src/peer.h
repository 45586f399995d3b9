/* Peers: one slot for each path to a peer. Slots live as long as the worker, so
 * that late completions never meet freed memory.
 *
 * P1 a slot is reused only after FAB_PEER_REMOVED was reported and no
 *    operation or frame of the old peer is out.
 * P2 slots are reused in turn, oldest first, and not before SLOT_QUARANTINE
 *    others are free: stale immediates meet a free slot.
 * P3 a broken peer is reported once; its transfers end, others do not notice.
 * P4 a lane that failed is not used again for this peer; what failed on it goes
 *    by the others. With its last lane the path is severed, if the peer has
 *    others, and its parts go there (transfer.h); else the peer breaks.
 * P5 a peer with a heartbeat is heard of within peer_timeout, or breaks. What it
 *    says it has sent arrives within half of that after it was last heard to
 *    say so, or it breaks: providers may lose what they called sent. */
#ifndef FAB_PEER_H
#define FAB_PEER_H

#include "cma.h"
#include "confirm.h"
#include "error.h"
#include "frame.h"
#include "list.h"

#include <stdatomic.h>

struct fab_address;
struct fab_part;
struct fab_worker;

enum fab_peer_state {
	FAB_PEER_FREE = 0,
	FAB_PEER_OPEN,     /* in the AV; only hellos leave */
	FAB_PEER_ATTACHED, /* knows our slot by its cookie, and we its */
	FAB_PEER_BROKEN,   /* reported; nothing leaves any more */
	FAB_PEER_REMOVING, /* waits for what is out */
	FAB_PEER_ORPHANED, /* removed, but something is still out */
};

/* What the loop hands over to add a peer. Owned by the worker. */
struct fab_peer_spec {
	uint64_t cookie;
	uint32_t route; /* the loop's number for the peer */
	uint32_t path;  /* of the route, which this is */
	uint32_t path_count;
	uint32_t address_bytes;
	uint32_t lane_count;
	unsigned char addresses[];
};

#define FAB_PROVEN_KEYS 16u

struct fab_peer {
	struct fab_link ready;    /* in worker->ready: has something to post */
	struct fab_link free;     /* in worker->free_peers */
	struct fab_link frames;   /* struct fab_outgoing, oldest first */
	struct fab_link posting;  /* transfers with pages left, in turn */
	struct fab_link waiting;  /* transfers that wait for a slot */
	struct fab_link settling; /* transfers with nothing left to post */
	struct fab_departures departures;
	struct fab_arrivals arrivals;
	struct fab_address **addresses;  /* owned array, one a lane */
	struct fab_peer_socket *sockets; /* owned array, connections.h */
	uint32_t socket_count;
	uint32_t silent;        /* broken since nothing is heard, not cut yet */
	uint64_t found;         /* bit mask: lanes with a socket of its */
	uint64_t told;          /* bit mask: lanes whose place it was told */
	uint64_t cookie;        /* what frames for us must carry */
	uint64_t remote_cookie; /* what frames to it must carry */
	uint32_t slot;
	uint32_t route; /* how the loop calls it */
	uint32_t path;  /* of the route, which this is */
	uint32_t path_count;
	uint32_t severed;    /* broken as a path alone */
	uint64_t paths_down; /* bit mask: those that it has told of here */
	uint32_t turn;       /* lane that goes first */
	uint64_t down; /* bit mask: lanes by which it is not reached any more */
	uint32_t remote_slot;
	uint32_t state;
	uint32_t frames_out; /* posted, not completed */
	uint32_t operations_out;
	uint32_t starved;      /* memory was out: breaks with its next turn */
	uint64_t opened_ns;    /* when it was added */
	uint64_t heard_ns;     /* last sign of life */
	uint64_t beat_ns;      /* when the last heartbeat left */
	uint64_t heartbeat_ns; /* between two; 0: there are none */
	uint64_t messages_out; /* frames of that kind that have left */
	uint64_t messages_in;  /* that have arrived */
	uint64_t missing_ns;   /* since when some have not; 0: all have */
	struct fab_cma cma;    /* the process behind it */
	struct fab_proof proven[FAB_PROVEN_KEYS]; /* what it called good */
	uint64_t stirred_ns;  /* when it was last told to keep polling */
	uint64_t waiting_ns;  /* since when something waits for it; 0: no */
	uint64_t deadline_ns; /* of REMOVING and BROKEN; 0: over */
	/* Bytes of frames handed to the loop and not reaped yet. The worker
	 * adds, the loop subtracts. Never reset: it outlives the peer. */
	_Atomic uint64_t held_bytes;
};

/* Commands. Take over their object. [worker] */
void fab_peer_open(struct fab_worker *worker, struct fab_peer_spec *spec);
void fab_peer_link(struct fab_worker *worker, struct fab_peer *peer,
		   uint32_t remote_slot, uint64_t remote_cookie,
		   uint64_t heartbeat_ns);
void fab_peer_close(struct fab_worker *worker, struct fab_peer *peer);
void fab_peer_queue(struct fab_worker *worker, struct fab_peer *peer,
		    struct fab_outgoing *frame);

/* A heartbeat of the peer's. [worker] */
void fab_peer_hear_beat(struct fab_worker *worker, struct fab_peer *peer,
			const struct fab_beat *beat);

/* The peer has lost paths: the loop shall hear. 0, or -EPROTO. [worker] */
int fab_peer_hear_paths(struct fab_worker *worker, struct fab_peer *peer,
			const struct fab_paths *paths);

/* Memory is out: break the peer with its next turn, and not at once, since the
 * caller may be about one of its transfers. [worker] */
void fab_peer_starve(struct fab_worker *worker, struct fab_peer *peer);

/* Queue an engine frame. Out of memory breaks the peer. [worker] */
void fab_peer_send(struct fab_worker *worker, struct fab_peer *peer,
		   uint32_t kind, const void *payload, uint32_t bytes);

/* The peer, or the way to it, failed. Idempotent. [worker] */
void fab_peer_break(struct fab_worker *worker, struct fab_peer *peer, int code,
		    const char *call, const char *text);
void fab_peer_break_by(struct fab_worker *worker, struct fab_peer *peer,
		       const struct fab_error *error);

/* This path failed; others may lead there. Idempotent. [worker] */
void fab_peer_sever(struct fab_worker *worker, struct fab_peer *peer,
		    const struct fab_error *error);

/* A lane to the peer failed. 1 if others are left; else the peer breaks.
 * [worker] */
int fab_peer_lose_lane(struct fab_worker *worker, struct fab_peer *peer,
		       uint32_t lane, const struct fab_error *error);

/* Whether the peer has said that this key grants the access; and that it has. A
 * few are remembered. [worker] */
int fab_peer_has_proven(struct fab_peer *peer, uint64_t key, uint32_t access);
void fab_peer_prove(struct fab_peer *peer, const struct fab_proof *proof);

/* Something to post: get its turn. [worker] */
void fab_peer_ready(struct fab_worker *worker, struct fab_peer *peer);

/* What is out went down, or time passed. [worker] */
void fab_peer_settle(struct fab_worker *worker, struct fab_peer *peer);
void fab_peer_tick(struct fab_worker *worker, struct fab_peer *peer);

/* Take its addresses out of the AVs, as removal does. Idempotent. [worker] */
void fab_peer_forget(struct fab_worker *worker, struct fab_peer *peer);

/* This side was not there for so long: no peer is to blame. [worker] */
void fab_peer_excuse(struct fab_worker *worker, uint64_t late_ns);

/* The endpoint is closed: nothing is out any more. [worker] */
void fab_peer_quiesce(struct fab_worker *worker, struct fab_peer *peer);
void fab_peer_destruct(struct fab_peer *peer);

#endif
