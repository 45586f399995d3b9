#include "confirm.h"

#include "part.h"
#include "peer.h"
#include "question.h"
#include "registration.h"
#include "worker.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 16u

void fab_departures_destruct(struct fab_departures *departures)
{
	free(departures->slots);
	memset(departures, 0, sizeof(*departures));
}

void fab_arrivals_destruct(struct fab_arrivals *arrivals)
{
	free(arrivals->slots);
	memset(arrivals, 0, sizeof(*arrivals));
}

static void departure_free(struct fab_departures *departures, uint32_t slot)
{
	departures->slots[slot].next_free = FAB_TRANSFER_SLOTS;
	if (departures->free_head == FAB_TRANSFER_SLOTS)
		departures->free_head = slot;
	else
		departures->slots[departures->free_tail].next_free = slot;
	departures->free_tail = slot;
}

static int departures_grow(struct fab_departures *departures)
{
	uint32_t capacity =
		departures->capacity ? departures->capacity * 2 : FIRST_SLOTS;
	struct fab_departure *slots;

	if (capacity > FAB_TRANSFER_SLOTS)
		return -FI_EAGAIN;
	slots = realloc(departures->slots, capacity * sizeof(*slots));
	if (!slots)
		return -FI_ENOMEM;
	departures->slots = slots;
	if (!departures->capacity)
		departures->free_head = FAB_TRANSFER_SLOTS;
	for (uint32_t i = departures->capacity; i < capacity; i++) {
		memset(&slots[i], 0, sizeof(slots[i]));
		departure_free(departures, i);
	}
	departures->capacity = capacity;
	return 0;
}

int fab_departure_open(struct fab_departures *departures, uint32_t remote_peer,
		       struct fab_part *part, uint32_t *immediate)
{
	struct fab_departure *departure;
	uint32_t slot;
	int ret;

	if (!departures->capacity ||
	    departures->free_head == FAB_TRANSFER_SLOTS) {
		ret = departures_grow(departures);
		if (ret)
			return ret;
	}
	slot = departures->free_head;
	departure = &departures->slots[slot];
	departures->free_head = departure->next_free;
	departure->part = part;
	*immediate = fab_immediate(remote_peer, slot, departure->generation);
	return 0;
}

void fab_departure_close(struct fab_departures *departures, uint32_t immediate)
{
	uint32_t slot = fab_immediate_slot(immediate);
	struct fab_departure *departure = &departures->slots[slot];

	departure->part = NULL;
	departure->generation = (uint8_t) ((departure->generation + 1) &
					   ((1u << FAB_GENERATION_BITS) - 1));
	departure_free(departures, slot);
}

void fab_departure_undo(struct fab_departures *departures, uint32_t immediate)
{
	uint32_t slot = fab_immediate_slot(immediate);

	departures->slots[slot].part = NULL;
	departure_free(departures, slot);
}

struct fab_part *fab_departure_find(const struct fab_departures *departures,
				    uint32_t immediate)
{
	uint32_t slot = fab_immediate_slot(immediate);

	if (slot >= departures->capacity ||
	    departures->slots[slot].generation !=
		    fab_immediate_generation(immediate))
		return NULL;
	return departures->slots[slot].part;
}

static struct fab_arrival *arrival_find(struct fab_arrivals *arrivals,
					uint32_t slot)
{
	uint32_t capacity =
		arrivals->capacity ? arrivals->capacity : FIRST_SLOTS;
	struct fab_arrival *slots;

	if (slot < arrivals->capacity)
		return &arrivals->slots[slot];
	while (capacity <= slot)
		capacity *= 2;
	slots = realloc(arrivals->slots, capacity * sizeof(*slots));
	if (!slots)
		return NULL;
	memset(slots + arrivals->capacity, 0,
	       (capacity - arrivals->capacity) * sizeof(*slots));
	for (uint32_t i = arrivals->capacity; i < capacity; i++)
		slots[i].generation = FAB_NO_GENERATION;
	arrivals->slots = slots;
	arrivals->capacity = capacity;
	return &slots[slot];
}

/* The entry counting this generation, opened if need be; NULL if the value is
 * stale (or memory is out, which the source learns by its query). */
static struct fab_arrival *arrival_open(struct fab_arrivals *arrivals,
					uint32_t immediate)
{
	uint8_t generation = (uint8_t) fab_immediate_generation(immediate);
	struct fab_arrival *arrival;

	arrival = arrival_find(arrivals, fab_immediate_slot(immediate));
	if (!arrival)
		return NULL;
	if (arrival->generation == generation)
		return arrival->open ? arrival : NULL;
	/* Slots go through all generations: anything else but the next one is
	 * late. */
	if (arrival->open ||
	    (arrival->generation != FAB_NO_GENERATION &&
	     generation != ((arrival->generation + 1u) &
			    ((1u << FAB_GENERATION_BITS) - 1))))
		return NULL;
	memset(arrival, 0, sizeof(*arrival));
	arrival->generation = generation;
	arrival->open = 1;
	return arrival;
}

static void confirm_send(struct fab_worker *worker, struct fab_peer *peer,
			 const struct fab_arrival *arrival, uint32_t immediate,
			 int32_t status)
{
	struct fab_confirm confirm = {
		.sequence = arrival->sequence,
		.counted = arrival->counted,
		.immediate = immediate,
		.status = status,
	};

	fab_peer_send(worker, peer, FAB_FRAME_CONFIRM, &confirm,
		      sizeof(confirm));
}

static void arrival_check(struct fab_worker *worker, struct fab_peer *peer,
			  struct fab_arrival *arrival, uint32_t immediate)
{
	if (!arrival->known || arrival->counted < arrival->announced)
		return;
	if (arrival->counted > arrival->announced) {
		fab_peer_break(worker, peer, -EPROTO, "fi_cq_read",
			       "more operations arrived than were announced");
		return;
	}
	arrival->open = 0;
	confirm_send(worker, peer, arrival, immediate, 0);
	if (arrival->status)
		return; /* reported when it was announced */
	fab_worker_count(&worker->statistics.transfers_confirmed, 1);
	if (arrival->notify)
		fab_worker_report_arrival(worker, peer, arrival, 0);
}

void fab_confirm_count(struct fab_worker *worker, uint32_t immediate)
{
	struct fab_peer *peer =
		fab_worker_peer(worker, fab_immediate_peer(immediate));
	struct fab_arrival *arrival = NULL;

	fab_worker_count(&worker->statistics.immediates_received, 1);
	if (peer)
		arrival = arrival_open(&peer->arrivals, immediate);
	if (!arrival) {
		fab_worker_count(&worker->statistics.stale_immediates, 1);
		return;
	}
	peer->heard_ns = worker->now_ns;
	arrival->counted++;
	arrival_check(worker, peer, arrival, immediate);
}

/* C5. What still arrives of it is dropped as stale. */
static void arrival_refuse(struct fab_worker *worker, struct fab_peer *peer,
			   struct fab_arrival *arrival, uint32_t immediate)
{
	arrival->open = 0;
	confirm_send(worker, peer, arrival, immediate, arrival->refusal);
	if (arrival->notify)
		fab_worker_report_arrival(worker, peer, arrival,
					  arrival->refusal);
}

void fab_confirm_announced(struct fab_worker *worker, struct fab_peer *peer,
			   const struct fab_announce *announce)
{
	struct fab_arrival *arrival;
	uint32_t immediate = announce->immediate;

	if (fab_immediate_peer(immediate) != peer->slot ||
	    announce->status > 0 || announce->part >= announce->parts ||
	    announce->parts > peer->path_count ||
	    announce->from_path >= peer->path_count) {
		fab_peer_break(worker, peer, -EPROTO, "fi_recv",
			       "announcement that cannot be");
		return;
	}
	arrival = arrival_open(&peer->arrivals, immediate);
	if (!arrival) {
		/* Known and over: say so again (C4). Otherwise stale. */
		arrival = arrival_find(&peer->arrivals,
				       fab_immediate_slot(immediate));
		if (arrival && !arrival->open &&
		    arrival->sequence == announce->sequence)
			confirm_send(worker, peer, arrival, immediate,
				     arrival->refusal);
		else
			fab_worker_count(&worker->statistics.stale_frames, 1);
		return;
	}
	if (announce->flags & FAB_ANNOUNCE_MOVED) {
		arrival->sequence = announce->sequence;
		if (!arrival->asked)
			arrival->asked =
				!fab_question_ask(worker, peer, announce);
		return;
	}
	if (announce->flags & FAB_ANNOUNCE_RESTART) {
		arrival->open = 0;
		arrival->sequence = announce->sequence;
		arrival->refusal = -FI_ECANCELED;
		confirm_send(worker, peer, arrival, immediate, -FI_ECANCELED);
		return;
	}
	if (arrival->known && (arrival->sequence != announce->sequence ||
			       arrival->announced != announce->count)) {
		fab_peer_break(worker, peer, -EPROTO, "fi_recv",
			       "two announcements for one transfer differ");
		return;
	}
	if (arrival->known && announce->status == arrival->status &&
	    !(announce->flags & FAB_ANNOUNCE_UNCOUNTED)) {
		if (announce->flags & FAB_ANNOUNCE_QUERY)
			confirm_send(worker, peer, arrival, immediate,
				     -FI_EAGAIN);
		return;
	}
	arrival->sequence = announce->sequence;
	arrival->announced = announce->count;
	arrival->notify = !!(announce->flags & FAB_ANNOUNCE_NOTIFY);
	arrival->parts = (uint8_t) announce->parts;
	arrival->part = (uint8_t) announce->part;
	arrival->known = 1;
	if (announce->status && !arrival->status && arrival->notify)
		fab_worker_report_arrival(worker, peer, arrival,
					  announce->status);
	arrival->status = announce->status;
	if (!announce->status && announce->access)
		arrival->refusal = fab_registration_grants(
			worker, announce->key, announce->access);
	if (arrival->refusal) {
		arrival_refuse(worker, peer, arrival, immediate);
		return;
	}
	if (announce->flags & FAB_ANNOUNCE_UNCOUNTED)
		arrival->announced = arrival->counted; /* C6 */
	arrival_check(worker, peer, arrival, immediate);
}

void fab_confirm_confirmed(struct fab_worker *worker, struct fab_peer *peer,
			   const struct fab_confirm *confirm)
{
	struct fab_part *part;

	part = fab_departure_find(&peer->departures, confirm->immediate);
	if (confirm->status > 0) {
		fab_peer_break(worker, peer, -EPROTO, "fi_recv",
			       "confirmation with no such status");
		return;
	}
	if (!part || part->sequence != confirm->sequence ||
	    part->immediate != confirm->immediate || !part->announced) {
		fab_worker_count(&worker->statistics.stale_frames, 1);
		return;
	}
	fab_part_confirmed(worker, part, confirm->status, confirm->counted);
}

int32_t fab_confirm_outcome(const struct fab_arrivals *arrivals,
			    uint32_t immediate, uint64_t sequence)
{
	uint32_t slot = fab_immediate_slot(immediate);
	const struct fab_arrival *arrival;

	if (slot >= arrivals->capacity)
		return -FI_ECANCELED;
	arrival = &arrivals->slots[slot];
	if (arrival->generation != fab_immediate_generation(immediate) ||
	    arrival->sequence != sequence)
		return -FI_ECANCELED;
	if (arrival->known && arrival->status)
		return 0;
	return arrival->open ? -FI_ECANCELED : arrival->refusal;
}

void fab_confirm_answer(struct fab_worker *worker, struct fab_peer *peer,
			uint32_t immediate, int32_t outcome)
{
	struct fab_arrival *arrival = arrival_open(&peer->arrivals, immediate);

	if (!arrival || !arrival->asked)
		return; /* the source gave up meanwhile */
	arrival->open = arrival->asked = 0;
	arrival->refusal = outcome;
	confirm_send(worker, peer, arrival, immediate, outcome);
}

void fab_confirm_prove(struct fab_worker *worker, struct fab_peer *peer,
		       const struct fab_proof *proof)
{
	if (!fab_registration_grants(worker, proof->key, proof->access))
		fab_peer_send(worker, peer, FAB_FRAME_PROVEN, proof,
			      sizeof(*proof));
}
