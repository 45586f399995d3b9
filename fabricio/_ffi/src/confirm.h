/* End-to-end confirmation, in the engine on both sides.
 *
 * The operations of a confirmed write carry 32 bits of immediate data that name
 * the target's slot for the source, and one of the source's transfer slots with
 * a generation. The target counts them; the source announces how many there
 * are; when both agree the target confirms with one frame. Pages that were copied
 * without the provider (cma.h) are in place, and not counted. A read carries no
 * immediate data: its announcement asks the target to prove the key.
 *
 * C1 an immediate names (peer slot, transfer slot, generation); a transfer
 *    slot is reused only after its confirmation came, with the next
 *    generation, so within what can be outstanding none collides.
 * C2 arrivals before the announcement are kept, and announcements before
 *    arrivals too: no order is assumed.
 * C3 the target confirms exactly when counted == announced; counted above it
 *    is a protocol error of that peer.
 * C4 an announcement may come again (a query): it is answered again and
 *    changes nothing.
 * C5 a transfer is confirmed only if its key names an open region that grants
 *    the access: providers report success for keys that do not.
 * C6 a source that gave up says so: the target learns the status, forgets the
 *    count, and drops what still arrives for that generation.
 * C7 a source that begins again, since a lane failed, has the target forget the
 *    count first, and waits for its word: -FI_ECANCELED, or 0 if all had
 *    arrived before.
 * C8 the same for one that was announced on a path which has failed since: the
 *    target closes that path, so that its count there is the last word, and
 *    then answers on the new one (question.h). What it has told the loop there,
 *    of a failure as well, is not told again. */
#ifndef FAB_CONFIRM_H
#define FAB_CONFIRM_H

#include "frame.h"

#include <stdint.h>

struct fab_peer;
struct fab_part;
struct fab_worker;

#define FAB_TRANSFER_BITS   10u
#define FAB_GENERATION_BITS 6u
#define FAB_TRANSFER_SLOTS  (1u << FAB_TRANSFER_BITS)

static inline uint32_t fab_immediate(uint32_t peer, uint32_t slot,
				     uint32_t generation)
{
	return peer << 16 | slot << FAB_GENERATION_BITS | generation;
}
static inline uint32_t fab_immediate_peer(uint32_t immediate)
{
	return immediate >> 16;
}
static inline uint32_t fab_immediate_slot(uint32_t immediate)
{
	return immediate >> FAB_GENERATION_BITS & (FAB_TRANSFER_SLOTS - 1);
}
static inline uint32_t fab_immediate_generation(uint32_t immediate)
{
	return immediate & ((1u << FAB_GENERATION_BITS) - 1);
}

/* Source side: which transfer holds which slot. Grows by doubling. */
struct fab_departures {
	struct fab_departure {
		struct fab_part *part; /* borrowed; NULL when free */
		uint32_t next_free;
		uint8_t generation;
	} *slots; /* owned */
	uint32_t capacity;
	uint32_t free_head, free_tail; /* queue; FAB_TRANSFER_SLOTS: none */
};

/* Target side: what is known of each of the peer's transfer slots. */
struct fab_arrivals {
	struct fab_arrival {
		uint64_t counted;
		uint64_t announced;
		uint64_t sequence;  /* of the announcement, or the last one */
		int32_t refusal;    /* 0, or why this side refused it */
		int32_t status;     /* announced, or of the last one */
		uint8_t generation; /* FAB_NO_GENERATION before first use */
		uint8_t open;       /* counting */
		uint8_t known;      /* announced is valid */
		uint8_t notify;
		uint8_t parts; /* of the transfer */
		uint8_t part;  /* which of them */
		uint8_t asked; /* the answer is on its way (C8) */
	} *slots;              /* owned */
	uint32_t capacity;
};

#define FAB_NO_GENERATION 255u

void fab_departures_destruct(struct fab_departures *departures);
void fab_arrivals_destruct(struct fab_arrivals *arrivals);

/* Give the transfer a slot and its immediate value. 0, -FI_EAGAIN when all
 * slots are out, or -FI_ENOMEM. [worker] */
int fab_departure_open(struct fab_departures *departures, uint32_t remote_peer,
		       struct fab_part *part, uint32_t *immediate);
void fab_departure_close(struct fab_departures *departures, uint32_t immediate);
/* The same for a value that the peer has never seen: it is used again. */
void fab_departure_undo(struct fab_departures *departures, uint32_t immediate);
/* NULL if the value is stale. */
struct fab_part *fab_departure_find(const struct fab_departures *departures,
				    uint32_t immediate);

/* One operation with this immediate value has landed. [worker] */
void fab_confirm_count(struct fab_worker *worker, uint32_t immediate);

/* Frames of the two kinds, from a peer whose slot and cookie fit. [worker] */
void fab_confirm_announced(struct fab_worker *worker, struct fab_peer *peer,
			   const struct fab_announce *announce);
void fab_confirm_confirmed(struct fab_worker *worker, struct fab_peer *peer,
			   const struct fab_confirm *confirm);
/* What became of it under this value, which is closed for good: 0 if all had
 * arrived, or the peer had said that it gave up; why this side refused it; or
 * -FI_ECANCELED, of which nobody was told. [worker] */
int32_t fab_confirm_outcome(const struct fab_arrivals *arrivals,
			    uint32_t immediate, uint64_t sequence);

/* Answer the announcement of a part that has moved (C8). [worker] */
void fab_confirm_answer(struct fab_worker *worker, struct fab_peer *peer,
			uint32_t immediate, int32_t outcome);

/* Answers only a key that is good: the announcement refuses the others. */
void fab_confirm_prove(struct fab_worker *worker, struct fab_peer *peer,
		       const struct fab_proof *proof);

#endif
