/* Frames: what goes over fi_send(3), and the buffers it goes through.
 *
 * On the wire a frame is a struct fab_frame_header, little-endian, and a
 * payload. Engine frames (ANNOUNCE to PROCESS) have a fixed payload; HELLO and
 * MESSAGE payloads belong to Python. */
#ifndef FAB_FRAME_H
#define FAB_FRAME_H

#include "fabricio.h"
#include "list.h"
#include "op.h"

#include <stdatomic.h>

#define FAB_FRAME_MAGIC   0xfab1u
#define FAB_FRAME_VERSION 1u

enum fab_engine_frame_kind {
	FAB_FRAME_ANNOUNCE = 16, /* source -> target: so many operations */
	FAB_FRAME_CONFIRM = 17,  /* target -> source: counted them */
	FAB_FRAME_STIR =
		18, /* keep polling: what I do shows in no CQ of yours */
	FAB_FRAME_PROVE = 19,   /* source -> target: is this key good? */
	FAB_FRAME_PROVEN = 20,  /* target -> source: it is */
	FAB_FRAME_BEAT = 21,    /* I live, and have sent you so much */
	FAB_FRAME_PATHS = 22,   /* I have lost these paths */
	FAB_FRAME_PLACE = 23,   /* a socket of mine leads to you from here */
	FAB_FRAME_PROCESS = 24, /* you reach my memory so: cma.h */
};

struct fab_frame_header {
	uint16_t magic;
	uint8_t version;
	uint8_t kind;
	uint32_t peer;   /* receiver's slot for the sender, or FAB_NO_PEER */
	uint64_t cookie; /* receiver's cookie for that slot, or 0 */
};

enum fab_announce_flags {
	FAB_ANNOUNCE_NOTIFY = 1,    /* tell the loop when all is in place */
	FAB_ANNOUNCE_QUERY = 2,     /* answer now, complete or not */
	FAB_ANNOUNCE_UNCOUNTED = 4, /* failed: nobody knows how many arrived */
	FAB_ANNOUNCE_RESTART = 8,   /* forget it: it begins again (C7) */
	FAB_ANNOUNCE_MOVED = 16     /* it began on another path (C8) */
};

struct fab_announce {
	uint64_t sequence;
	uint64_t count; /* operations with this immediate value */
	uint64_t key;   /* remote key that the transfer uses */
	uint32_t immediate;
	int32_t status; /* 0 or why the source gave up */
	uint32_t flags;
	uint32_t access; /* enum fab_access: what the key must grant; 0: none */
	uint32_t parts;  /* of the transfer, each announced on its own path */
	uint32_t part;   /* which of them */
	/* MOVED: how it was announced before. */
	uint32_t from_path;
	uint32_t from_immediate;
};

struct fab_confirm {
	uint64_t sequence;
	uint64_t counted;
	uint32_t immediate;
	int32_t status; /* 0: all arrived; -FI_EAGAIN: not yet; else refused */
};

/* Of PROVE and PROVEN. */
struct fab_proof {
	uint64_t key;
	uint32_t access; /* enum fab_access */
	uint32_t reserved;
};

struct fab_beat {
	uint64_t messages; /* frames of that kind that left on this path */
};

struct fab_paths {
	uint64_t down; /* bit mask */
};

enum fab_place_family {
	FAB_PLACE_IP4 = 4,
	FAB_PLACE_IP6 = 6,
};

/* One end of a connection. Unused bytes are 0. */
struct fab_place {
	unsigned char host[16]; /* in network order */
	uint16_t port;
	uint16_t family;
};

struct fab_process {
	uint64_t id;
	uint64_t place; /* address of a token, in its memory */
	uint64_t token; /* what is found there */
};

#define FAB_ANY_LANE UINT32_MAX

/* A frame on its way out. Owned by the peer's queue, then by its op. */
struct fab_outgoing {
	struct fab_link link; /* in struct fab_peer.frames */
	uint64_t token;       /* 0: nobody waits */
	uint32_t kind;
	uint32_t lane;  /* to leave by, or FAB_ANY_LANE */
	uint32_t bytes; /* of data, header included */
	struct fab_frame_header header;
	unsigned char payload[];
};

/* A received frame, copied out of the posted buffer. In completions it is known
 * by its payload. Owned by the completion ring, then by the engine: reaped, it
 * is lent to the loop until the next reap. */
struct fab_frame {
	_Atomic uint64_t *held; /* borrowed from the worker until reaped */
	struct fab_frame *next; /* in engine->lent */
	uint64_t bytes;
	unsigned char payload[];
};

/* What a frame that the loop has not reaped yet counts for its peer. */
#define FAB_FRAME_CHARGE(frame) ((frame)->bytes + 64)

static inline struct fab_frame *fab_frame_of(const void *payload)
{
	return (struct fab_frame *) ((uintptr_t) payload -
				     offsetof(struct fab_frame, payload));
}

/* [any] NULL when memory is out. */
struct fab_outgoing *fab_outgoing_alloc(uint32_t kind, uint64_t token,
					const void *head, uint32_t head_bytes,
					const void *body, uint32_t body_bytes);

#endif
