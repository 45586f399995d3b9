#include "route.h"

#include "engine.h"
#include "frame.h"
#include "peer.h"
#include "question.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

/* Parts of one transfer of the peer's that have arrived. */
struct fab_route_arrival {
	struct fab_link link;
	uint64_t sequence;
	uint64_t seen; /* bit mask: parts */
	uint32_t left;
	int32_t status; /* of the first that failed, told already */
};

struct fab_route *fab_route_find(const struct fab_routes *routes,
				 uint32_t number)
{
	return number < routes->capacity ? routes->items[number] : NULL;
}

static struct fab_route *route_alloc(struct fab_routes *routes)
{
	struct fab_route **items;
	struct fab_route *made;
	uint32_t number = 0, capacity;

	while (number < routes->capacity && routes->items[number])
		number++;
	if (number == routes->capacity) {
		capacity = number ? number * 2 : 16;
		items = realloc(routes->items, capacity * sizeof(*items));
		if (!items)
			return NULL;
		memset(items + number, 0, (capacity - number) * sizeof(*items));
		routes->items = items;
		routes->capacity = capacity;
	}
	made = calloc(1, sizeof(*made));
	if (!made)
		return NULL;
	made->number = number;
	fab_list_construct(&made->arrivals);
	routes->items[number] = made;
	return made;
}

static void arrival_free(struct fab_route *route,
			 struct fab_route_arrival *arrival)
{
	fab_list_remove(&arrival->link);
	route->arrival_count--;
	free(arrival);
}

static void route_free(struct fab_routes *routes, struct fab_route *route)
{
	while (!fab_list_empty(&route->arrivals))
		arrival_free(route, FAB_ENTRY(route->arrivals.next,
					      struct fab_route_arrival, link));
	routes->items[route->number] = NULL;
	free(route->error);
	free(route);
}

void fab_routes_destruct(struct fab_routes *routes)
{
	for (uint32_t i = 0; i < routes->capacity; i++) {
		if (routes->items[i])
			route_free(routes, routes->items[i]);
	}
	free(routes->items);
}

uint32_t fab_route_worker(const struct fab_engine *engine, uint32_t path)
{
	return path % engine->worker_count;
}

uint32_t fab_route_lane(const struct fab_route *route, uint32_t path,
			uint32_t lane)
{
	uint32_t there = path % route->worker_count;

	return route->first_lanes[there] +
	       (path / route->worker_count + lane) % route->lane_counts[there];
}

static int route_reserve(struct fab_engine *engine,
			 const struct fab_route *route)
{
	return fab_engine_reserve(engine, UINT64_MAX, route->path_count);
}

static int route_measure(struct fab_route *route, const uint32_t *lane_counts,
			 uint32_t worker_count)
{
	if (!worker_count || worker_count > FAB_MAX_WORKERS)
		return -FI_EINVAL;
	for (uint32_t i = 0; i < worker_count; i++) {
		if (!lane_counts[i] || lane_counts[i] > FAB_MAX_LANES)
			return -FI_EINVAL;
		route->lane_counts[i] = lane_counts[i];
		route->first_lanes[i] = route->lane_total;
		route->lane_total += lane_counts[i];
	}
	route->worker_count = worker_count;
	return 0;
}

static struct fab_peer_spec *spec_alloc(const struct fab_route *route,
					uint32_t path, uint64_t cookie,
					const unsigned char *addresses,
					uint32_t address_bytes)
{
	uint32_t there = path % route->worker_count;
	size_t bytes = (size_t) address_bytes * route->lane_counts[there];
	struct fab_peer_spec *spec = calloc(1, sizeof(*spec) + bytes);

	if (!spec)
		return NULL;
	spec->route = route->number;
	spec->path = path;
	spec->path_count = route->path_count;
	spec->cookie = cookie;
	spec->address_bytes = address_bytes;
	spec->lane_count = route->lane_counts[there];
	for (uint32_t i = 0; i < spec->lane_count; i++)
		memcpy(spec->addresses + (size_t) address_bytes * i,
		       addresses + (size_t) address_bytes *
					   fab_route_lane(route, path, i),
		       address_bytes);
	return spec;
}

int fab_peer_add(struct fab_engine *engine, uint64_t token, uint64_t cookie,
		 const void *addresses, uint32_t address_bytes,
		 const uint32_t *lane_counts, uint32_t worker_count)
{
	struct fab_peer_spec *specs[FAB_MAX_WORKERS] = {0};
	struct fab_route *route = route_alloc(&engine->routes);
	int ret = -FI_ENOMEM;

	if (!route)
		return ret;
	ret = address_bytes ? route_measure(route, lane_counts, worker_count) :
			      -FI_EINVAL;
	if (ret)
		goto failed;
	route->token = token;
	route->path_count = worker_count > engine->worker_count ?
				    worker_count :
				    engine->worker_count;
	ret = -FI_ENOMEM;
	for (uint32_t i = 0; i < route->path_count; i++) {
		route->paths[i].slot = FAB_NO_PEER;
		specs[i] =
			spec_alloc(route, i, cookie, addresses, address_bytes);
		if (!specs[i])
			goto failed;
	}
	if (route_reserve(engine, route))
		goto failed;
	for (uint32_t i = 0; i < route->path_count; i++)
		fab_engine_command(engine, fab_route_worker(engine, i),
				   FAB_COMMAND_PEER_ADD, FAB_NO_PEER, specs[i]);
	route->adding = route->path_count;
	return 0;
failed:
	for (uint32_t i = 0; i < FAB_MAX_WORKERS; i++)
		free(specs[i]);
	route_free(&engine->routes, route);
	return ret;
}

uint32_t fab_peer_path_count(const struct fab_engine *engine, uint32_t peer)
{
	const struct fab_route *route = fab_route_find(&engine->routes, peer);

	return route ? route->path_count : 0;
}

uint32_t fab_peer_slot(const struct fab_engine *engine, uint32_t peer,
		       uint32_t path)
{
	const struct fab_route *route = fab_route_find(&engine->routes, peer);

	return route && path < route->path_count ? route->paths[path].slot :
						   FAB_NO_PEER;
}

int fab_peer_attach(struct fab_engine *engine, uint32_t peer,
		    const uint32_t *remote_slots, uint32_t path_count,
		    uint64_t remote_cookie, uint64_t heartbeat_ns)
{
	const struct fab_route *route = fab_route_find(&engine->routes, peer);

	if (!route || path_count != route->path_count)
		return -FI_EINVAL;
	for (uint32_t i = 0; i < path_count; i++) {
		if (remote_slots[i] > UINT16_MAX)
			return -FI_EINVAL;
	}
	if (route_reserve(engine, route))
		return -FI_ENOMEM;
	for (uint32_t i = 0; i < path_count; i++) {
		struct fab_command command = {
			.kind = FAB_COMMAND_PEER_ATTACH,
			.peer = route->paths[i].slot,
			.number = remote_slots[i],
			.cookie = remote_cookie,
			.heartbeat_ns = heartbeat_ns,
		};

		(void) fab_engine_submit(engine, fab_route_worker(engine, i),
					 &command);
	}
	return 0;
}

static void route_remove(struct fab_engine *engine, struct fab_route *route)
{
	route->removing = 1;
	for (uint32_t i = 0; i < route->path_count; i++) {
		if (route->paths[i].slot != FAB_NO_PEER)
			fab_engine_command(engine, fab_route_worker(engine, i),
					   FAB_COMMAND_PEER_REMOVE,
					   route->paths[i].slot, NULL);
	}
}

int fab_peer_remove(struct fab_engine *engine, uint32_t peer)
{
	struct fab_route *route = fab_route_find(&engine->routes, peer);

	if (!route)
		return -FI_EINVAL;
	if (route->removing)
		return 0;
	if (route_reserve(engine, route))
		return -FI_ENOMEM;
	route_remove(engine, route);
	return 0;
}

static uint64_t route_paths(const struct fab_route *route)
{
	return UINT64_MAX >> (64 - route->path_count);
}

/* R4. */
static uint32_t route_message_path(const struct fab_route *route)
{
	uint64_t up = route_paths(route) & ~route->down;

	return up ? (uint32_t) __builtin_ctzll(up) : 0;
}

int fab_frame_send(struct fab_engine *engine, uint32_t peer, uint32_t kind,
		   uint64_t token, const void *head, uint32_t head_bytes,
		   const void *body, uint32_t body_bytes)
{
	const struct fab_route *route = fab_route_find(&engine->routes, peer);
	struct fab_outgoing *frame;
	struct fab_worker *worker;
	uint32_t path, index;

	if (!route || (kind != FAB_FRAME_HELLO && kind != FAB_FRAME_MESSAGE))
		return -FI_EINVAL;
	path = route_message_path(route);
	index = fab_route_worker(engine, path);
	worker = &engine->workers[index];
	if (!worker->lane_count)
		return -FI_EOPBADSTATE;
	if ((uint64_t) head_bytes + body_bytes + sizeof(frame->header) >
	    worker->lanes[0].frame_stride)
		return -FI_EMSGSIZE;
	frame = fab_outgoing_alloc(kind, token, head, head_bytes, body,
				   body_bytes);
	if (!frame)
		return -FI_ENOMEM;
	if (!engine->backlogs[index].count &&
	    !fab_worker_express(worker, route->paths[path].slot, frame)) {
		fab_wakeup_rouse(&worker->sleeper);
		return 0;
	}
	if (fab_engine_reserve(engine, 1ull << index, 1)) {
		free(frame);
		return -FI_ENOMEM;
	}
	fab_engine_command(engine, index, FAB_COMMAND_FRAME,
			   route->paths[path].slot, frame);
	return 0;
}

static int route_break_path(struct fab_engine *engine,
			    const struct fab_route *route, uint32_t path,
			    enum fab_command_kind kind,
			    const struct fab_error *error)
{
	uint32_t worker = fab_route_worker(engine, path);
	struct fab_error *copy = fab_error_copy(error);

	if (!copy || fab_engine_reserve(engine, 1ull << worker, 1)) {
		free(copy);
		return -FI_ENOMEM;
	}
	fab_engine_command(engine, worker, kind, route->paths[path].slot, copy);
	return 0;
}

/* R5, what the peer says. */
static void route_give_up(struct fab_engine *engine, struct fab_route *route,
			  uint64_t paths)
{
	struct fab_error error;

	fab_error_set(&error, -FI_EHOSTUNREACH, "", 0,
		      "the peer has lost its NICs there");
	for (uint32_t i = 0; i < route->path_count && !route->removing; i++) {
		if (paths >> i & 1 && !(route->down >> i & 1))
			(void) route_break_path(engine, route, i,
						FAB_COMMAND_PATH_BREAK, &error);
	}
	route->down |= paths; /* for messages, at once */
}

/* R5. Who is not told, since memory is out, waits for heartbeats in vain. */
static void route_tell(struct fab_engine *engine, const struct fab_route *route)
{
	struct fab_paths paths = {.down = route->down};

	for (uint32_t i = 0; i < route->path_count && !route->removing; i++) {
		struct fab_outgoing *frame;
		uint32_t worker = fab_route_worker(engine, i);

		if (route->down >> i & 1)
			continue;
		frame = fab_outgoing_alloc(FAB_FRAME_PATHS, 0, &paths,
					   sizeof(paths), NULL, 0);
		if (!frame || fab_engine_reserve(engine, 1ull << worker, 1)) {
			free(frame);
			return;
		}
		fab_engine_command(engine, worker, FAB_COMMAND_FRAME,
				   route->paths[i].slot, frame);
	}
}

/* R1. Without memory the loop's removal has to do. */
static void route_break_others(struct fab_engine *engine,
			       const struct fab_route *route, uint32_t path,
			       const struct fab_error *error)
{
	for (uint32_t i = 0; i < route->path_count && !route->removing; i++) {
		if (i != path)
			(void) route_break_path(engine, route, i,
						FAB_COMMAND_PEER_BREAK, error);
	}
}

static int route_added(struct fab_engine *engine, struct fab_route *route,
		       struct fab_completion *completion)
{
	struct fab_path *path = &route->paths[completion->sequence];

	path->slot = completion->peer;
	route->present += path->slot != FAB_NO_PEER;
	fab_error_keep_first(&route->error, completion);
	if (!route->status)
		route->status = completion->status;
	if (--route->adding)
		return 0;
	completion->token = route->token;
	completion->sequence = 0;
	completion->peer = route->number;
	completion->status = route->status;
	completion->error = route->error;
	route->error = NULL;
	if (!route->status)
		return 1;
	completion->peer = FAB_NO_PEER;
	if (!route->present)
		route_free(&engine->routes, route);
	else if (!route_reserve(engine, route))
		route_remove(engine, route);
	return 1;
}

static int route_removed(struct fab_engine *engine, struct fab_route *route)
{
	int told = !route->status; /* else it was never there for the loop */

	if (--route->present)
		return 0;
	route_free(&engine->routes, route);
	return told;
}

static int route_failed(struct fab_engine *engine, struct fab_route *route,
			struct fab_completion *completion)
{
	struct fab_error error;

	if (route->failed || route->status) {
		free(completion->error);
		return 0;
	}
	route->failed = 1;
	fab_error_set(&error, completion->status, "", 0, NULL);
	if (completion->error)
		error = *completion->error;
	if (route->path_count > 1)
		route_break_others(engine, route,
				   (uint32_t) completion->sequence, &error);
	completion->sequence = 0;
	return 1;
}

static int route_severed(struct fab_engine *engine, struct fab_route *route,
			 struct fab_completion *completion)
{
	route->down |= 1ull << completion->sequence;
	if (route->down != route_paths(route)) {
		route_tell(engine, route);
		return 1;
	}
	completion->kind = FAB_PEER_FAILED;
	return route_failed(engine, route, completion);
}

static int route_arrived(struct fab_engine *engine, struct fab_route *route,
			 struct fab_completion *completion)
{
	uint32_t parts = (uint32_t) completion->count;
	uint64_t part = 1ull << completion->token;
	uint32_t most = FAB_TRANSFER_SLOTS * route->path_count;
	struct fab_route_arrival *arrival = NULL;
	struct fab_link *link;
	int told;

	completion->count = completion->token = 0;
	if (parts == 1)
		return 1;
	for (link = route->arrivals.next; link != &route->arrivals;
	     link = link->next) {
		arrival = FAB_ENTRY(link, struct fab_route_arrival, link);
		if (arrival->sequence == completion->sequence)
			break;
		arrival = NULL;
	}
	if (!arrival) {
		arrival = route->arrival_count < most ?
				  calloc(1, sizeof(*arrival)) :
				  NULL;
		if (!arrival) {
			struct fab_error error;

			fab_error_set(&error,
				      route->arrival_count < most ? -FI_ENOMEM :
								    -EPROTO,
				      "fi_cq_read", 0,
				      "too many transfers arrived in part");
			route_break_others(engine, route, UINT32_MAX, &error);
			return 0;
		}
		arrival->sequence = completion->sequence;
		arrival->left = parts;
		route->arrival_count++;
		fab_list_append(&route->arrivals, &arrival->link);
	}
	if (arrival->seen & part)
		return 0;
	arrival->seen |= part;
	told = arrival->status != 0;
	if (!arrival->status)
		arrival->status = completion->status;
	if (--arrival->left == 0)
		arrival_free(route, arrival);
	else if (!completion->status)
		return 0;
	return !told;
}

int fab_route_gather(struct fab_engine *engine,
		     struct fab_completion *completion)
{
	uint32_t number = completion->kind == FAB_PEER_ADDED ?
				  (uint32_t) completion->token :
				  completion->peer;
	struct fab_route *route = fab_route_find(&engine->routes, number);

	if (!route)
		return completion->kind != FAB_PATHS_DOWN;
	switch (completion->kind) {
	case FAB_PEER_ADDED:
		return route_added(engine, route, completion);
	case FAB_PEER_REMOVED:
		return route_removed(engine, route);
	case FAB_PEER_FAILED:
		return route_failed(engine, route, completion);
	case FAB_PATHS_DOWN:
		route_give_up(engine, route, completion->token);
		return 0;
	case FAB_PATH_FAILED:
		return route_severed(engine, route, completion);
	case FAB_TRANSFER_ARRIVED:
		return route_arrived(engine, route, completion);
	default:
		return 1;
	}
}
