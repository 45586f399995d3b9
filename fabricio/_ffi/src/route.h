/* Routes: the loop's view of a peer, and the paths that lead there.
 *
 * R1 the loop is told each thing once for all paths: ADDED and REMOVED when it
 *    is true of every one, FAILED with the first that fails for a reason of the
 *    peer's, which then fails the others, or with the last that is severed.
 * R2 nothing about a route follows its REMOVED; its number is free again.
 * R3 a notified transfer has arrived when as many of its parts have as the
 *    peer announced, or when the first one failed.
 * R4 messages take one path, the first that was not severed.
 * R5 the peer is told of each path that was severed, on all that are left, and
 *    so severs it as well. */
#ifndef FAB_ROUTE_H
#define FAB_ROUTE_H

#include "fabricio.h"
#include "list.h"

#include <stdint.h>

struct fab_engine;

enum fab_route_completion {
	FAB_PATHS_DOWN = 65, /* token: bit mask, from the peer */
};

/* Everything here is the loop's. */
struct fab_route {
	uint64_t token; /* of ADDED */
	uint32_t number;
	uint32_t path_count;
	uint32_t worker_count;                 /* of the peer */
	uint32_t lane_counts[FAB_MAX_WORKERS]; /* of its workers */
	uint32_t first_lanes[FAB_MAX_WORKERS]; /* of all its lanes */
	uint32_t lane_total;
	uint32_t turn;            /* path that the next transfer begins with */
	uint32_t adding;          /* paths that have not answered yet */
	uint32_t present;         /* paths that were added and not removed */
	uint32_t removing;        /* told to go */
	uint32_t failed;          /* told the loop */
	uint64_t down;            /* bit mask: paths that were severed */
	int32_t status;           /* of adding */
	struct fab_error *error;  /* owned: of the first failure of adding */
	struct fab_link arrivals; /* struct fab_route_arrival, owned */
	uint32_t arrival_count;
	struct fab_path {
		uint32_t slot; /* the worker's; FAB_NO_PEER: not there */
	} paths[FAB_MAX_WORKERS];
};

struct fab_routes {
	struct fab_route **items; /* owned, NULL where free */
	uint32_t capacity;
};

/* The worker that a path joins on this side. */
uint32_t fab_route_worker(const struct fab_engine *engine, uint32_t path);

/* The lane of all the peer's that a lane of ours leads to on this path. Unequal
 * counts wrap; paths that join the same worker begin with another lane each. */
uint32_t fab_route_lane(const struct fab_route *route, uint32_t path,
			uint32_t lane);

/* NULL if there is none of this number. [loop] */
struct fab_route *fab_route_find(const struct fab_routes *routes,
				 uint32_t number);

/* Take what a worker says of a path. 1 if the loop shall have it, made out for
 * the whole route. [loop] */
int fab_route_gather(struct fab_engine *engine,
		     struct fab_completion *completion);

void fab_routes_destruct(struct fab_routes *routes);

#endif
