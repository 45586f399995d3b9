#include "local.h"

#include "address.h"
#include "lane.h"
#include "list.h"

#include <pthread.h>
#include <rdma/fi_errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct fab_local {
	struct fab_link link;   /* in locals */
	struct fab_link guests; /* struct fab_visit.host_link */
	uint32_t users;         /* AVs that have it */
	uint32_t bytes;
	uint32_t closing;        /* or closed: its name stays known for ever,
				    since the provider crashes on it */
	struct fab_lane *parked; /* owned; NULL while its lane is open */
	unsigned char address[];
};

struct fab_visit {
	struct fab_link host_link; /* in host->guests */
	struct fab_local *visitor; /* both stay while users > 0 */
	struct fab_local *host;
	uint32_t left;             /* the visitor is gone */
	struct fab_address *entry; /* the host's for the visitor */
	_Atomic uint32_t state;    /* written under the mutex */
};

/* Any worker, under the mutex. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fab_link locals = {&locals, &locals};
/* Grows with each visit that begins or ends. Read without the mutex. */
static _Atomic uint32_t news;

struct fab_local *fab_local_publish(const void *address, uint32_t bytes)
{
	struct fab_local *local = calloc(1, sizeof(*local) + bytes);

	if (!local)
		return NULL;
	fab_list_construct(&local->guests);
	local->bytes = bytes;
	memcpy(local->address, address, bytes);
	pthread_mutex_lock(&mutex);
	fab_list_append(&locals, &local->link);
	pthread_mutex_unlock(&mutex);
	return local;
}

static struct fab_local *local_find(const void *address, uint32_t bytes)
{
	struct fab_local *found = NULL;
	struct fab_link *link;

	for (link = locals.next; link != &locals; link = link->next) {
		struct fab_local *local =
			FAB_ENTRY(link, struct fab_local, link);

		/* A new endpoint may have the name of one that closes. */
		if (local->bytes == bytes &&
		    !memcmp(local->address, address, bytes) &&
		    (!found || found->closing))
			found = local;
	}
	return found;
}

/* One AV less has it. Closes a parked endpoint with the last one. */
static void local_drop(struct fab_local *local)
{
	int last;

	pthread_mutex_lock(&mutex);
	last = --local->users == 0 && local->parked;
	pthread_mutex_unlock(&mutex);
	if (!last)
		return;
	fab_lane_close_objects(local->parked);
	free(local->parked);
}

int fab_visit_begin(struct fab_local *visitor, const void *address,
		    uint32_t bytes, struct fab_visit **visit)
{
	struct fab_visit *begun = calloc(1, sizeof(*begun));
	struct fab_local *host;
	int closing;

	if (!begun)
		return -FI_ENOMEM;
	pthread_mutex_lock(&mutex);
	host = local_find(address, bytes);
	closing = host && host->closing;
	if (closing)
		host = NULL;
	if (host) {
		begun->visitor = visitor;
		begun->host = host;
		host->users++;
		/* At home one is always welcome. */
		atomic_init(&begun->state, host == visitor ? FAB_VISIT_WELCOME :
							     FAB_VISIT_WAITING);
		fab_list_append(&host->guests, &begun->host_link);
		atomic_fetch_add_explicit(&news, 1, memory_order_release);
	}
	pthread_mutex_unlock(&mutex);
	if (!host) {
		free(begun);
		begun = NULL;
	}
	*visit = begun;
	return closing ? -FI_ECONNREFUSED : 0;
}

enum fab_visit_state fab_visit_state(const struct fab_visit *visit)
{
	return atomic_load_explicit(&visit->state, memory_order_acquire);
}

/* Under the mutex. Either side looks again. */
static void visit_move(struct fab_visit *visit, enum fab_visit_state state)
{
	atomic_store_explicit(&visit->state, state, memory_order_release);
	atomic_fetch_add_explicit(&news, 1, memory_order_release);
}

void fab_visit_end(struct fab_visit *visit)
{
	struct fab_local *host = visit->host;
	int over;

	pthread_mutex_lock(&mutex);
	visit->left = 1;
	/* While the host lives, it frees the visit when it has let go. */
	over = !fab_link_listed(&visit->host_link);
	atomic_fetch_add_explicit(&news, 1, memory_order_release);
	pthread_mutex_unlock(&mutex);
	if (over)
		free(visit);
	local_drop(host);
}

/* The host's side of one visit, as far as it has come. Called with the mutex
 * held; returns 1 if the visit is to be freed. */
static int visit_receive(struct fab_visit *visit, struct fab_lane *lane)
{
	enum fab_visit_state state = fab_visit_state(visit);

	if (visit->left) {
		fab_list_remove(&visit->host_link);
		return 1;
	}
	if (state == FAB_VISIT_SPOKEN || state == FAB_VISIT_HEARD) {
		visit_move(visit, state + 1);
		return 0;
	}
	if (state != FAB_VISIT_WAITING)
		return 0;
	if (fab_address_guest(lane, visit->visitor->address,
			      visit->visitor->bytes, &visit->entry)) {
		visit_move(visit, FAB_VISIT_OVER);
		return 0;
	}
	visit->visitor->users++;
	fab_address_speak(lane, visit->entry);
	visit_move(visit, FAB_VISIT_GREETED);
	return 0;
}

static void visit_let_go(struct fab_visit *visit, struct fab_lane *lane)
{
	if (visit->entry) {
		fab_address_release(lane, visit->entry);
		local_drop(visit->visitor);
	}
}

void fab_local_welcome(struct fab_local *local, struct fab_lane *lane)
{
	uint32_t now = atomic_load_explicit(&news, memory_order_acquire);
	struct fab_link *link, *next, gone;

	if (now == lane->local_seen)
		return;
	lane->local_seen = now;
	fab_addresses_purge(lane, 0);
	fab_list_construct(&gone);
	pthread_mutex_lock(&mutex);
	for (link = local->guests.next; link != &local->guests; link = next) {
		struct fab_visit *visit =
			FAB_ENTRY(link, struct fab_visit, host_link);

		next = link->next;
		if (visit_receive(visit, lane))
			fab_list_append(&gone, link);
	}
	pthread_mutex_unlock(&mutex);
	while (!fab_list_empty(&gone)) {
		struct fab_visit *visit =
			FAB_ENTRY(gone.next, struct fab_visit, host_link);

		fab_list_remove(&visit->host_link);
		visit_let_go(visit, lane);
		free(visit);
	}
}

ssize_t fab_local_read(struct fab_lane *lane, struct fi_cq_data_entry *entries,
		       size_t count)
{
	struct fab_link *link;
	ssize_t ret;

	/* The mutex keeps a host from speaking between our look and our
	 * reading what it said. */
	pthread_mutex_lock(&mutex);
	lane->visiting = 0;
	for (link = lane->addresses.next; link != &lane->addresses;
	     link = link->next) {
		struct fab_address *address =
			FAB_ENTRY(link, struct fab_address, link);
		struct fab_visit *visit = address->visit;

		if (visit && fab_visit_state(visit) == FAB_VISIT_GREETED) {
			fab_address_speak(lane, address);
			visit_move(visit, FAB_VISIT_SPOKEN);
		}
		if (visit && fab_visit_state(visit) == FAB_VISIT_WAITING)
			lane->visiting++;
	}
	ret = fi_cq_read(lane->cq, entries, count);
	pthread_mutex_unlock(&mutex);
	return ret;
}

/* All guests must go: the lane closes. */
static void local_expel(struct fab_local *local, struct fab_lane *lane)
{
	pthread_mutex_lock(&mutex);
	while (!fab_list_empty(&local->guests)) {
		struct fab_visit *visit = FAB_ENTRY(
			local->guests.next, struct fab_visit, host_link);
		struct fab_address *entry = visit->entry;
		struct fab_local *visitor = visit->visitor;
		uint32_t left = visit->left;

		fab_list_remove(&visit->host_link);
		visit->entry = NULL;
		visit_move(visit, FAB_VISIT_OVER);
		pthread_mutex_unlock(&mutex);
		if (entry) {
			fab_address_release(lane, entry);
			local_drop(visitor);
		}
		if (left)
			free(visit);
		pthread_mutex_lock(&mutex);
	}
	pthread_mutex_unlock(&mutex);
}

void fab_local_retire(struct fab_local *local, struct fab_lane *lane)
{
	struct fab_lane *copy = malloc(sizeof(*copy));
	int parked;

	pthread_mutex_lock(&mutex);
	local->closing = 1;
	pthread_mutex_unlock(&mutex);
	local_expel(local, lane);
	fab_addresses_purge(lane, 1); /* X2 */
	pthread_mutex_lock(&mutex);
	/* Without memory to park, the objects leak: better than a crash. */
	parked = local->users != 0;
	if (parked && copy) {
		*copy = *lane;
		local->parked = copy;
		copy = NULL;
	}
	pthread_mutex_unlock(&mutex);
	free(copy);
	if (parked)
		return;
	fab_lane_close_objects(lane);
}
