#include "pair.h"

#include "engine.h"
#include "region.h"
#include "registration.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#define PATIENCE_S 20

static int side_try(struct side *side, uint32_t kind,
		    struct fab_completion *completion)
{
	struct fab_completion one;

	while (fab_engine_reap(side->engine, &one, 1)) {
		if (one.kind == kind) {
			*completion = one;
			return 1;
		}
		if (one.error)
			fprintf(stderr, "unasked %u: %d %s %s\n", one.kind,
				one.status, one.error->call, one.error->text);
		fab_error_free(one.error);
	}
	return 0;
}

void side_await(struct side *side, uint32_t kind,
		struct fab_completion *completion)
{
	struct pollfd fd = {.fd = fab_engine_fd(side->engine),
			    .events = POLLIN};
	time_t end = time(NULL) + PATIENCE_S;

	while (!side_try(side, kind, completion)) {
		if (time(NULL) > end) {
			fprintf(stderr, "no completion of kind %u\n", kind);
			exit(1);
		}
		poll(&fd, 1, 1000);
	}
}

void side_open(struct side *side, const char *provider,
	       const struct fab_options *options)
{
	struct fab_options mine = *options;
	struct fab_completion completion;

	mine.provider = provider;
	if (strncmp(provider, "tcp", 3) == 0)
		mine.source = "127.0.0.1";
	CHECK(!fab_engine_open(&mine, &side->engine));
	for (uint32_t i = 0; i < side->engine->worker_count; i++) {
		side_await(side, FAB_WORKER_OPENED, &completion);
		if (!completion.status)
			continue;
		printf("%s: %s: %s\n", provider, completion.error->call,
		       fab_strerror(completion.status));
		fab_error_free(completion.error);
		fab_engine_close(side->engine);
		exit(77);
	}
	fab_engine_attributes(side->engine, &side->attributes);
}

static void side_add(struct side *side, const struct side *other,
		     uint64_t cookie)
{
	static unsigned char addresses[FAB_MAX_WORKERS * FAB_MAX_LANES * 256];
	uint32_t bytes = other->attributes.address_bytes;
	uint32_t lanes[FAB_MAX_WORKERS], total = 0;
	struct fab_completion completion;

	side->cookie = cookie;
	for (uint32_t i = 0; i < other->engine->worker_count; i++) {
		lanes[i] = fab_engine_lane_count(other->engine, i);
		for (uint32_t j = 0; j < lanes[i]; j++)
			CHECK(!fab_engine_address(other->engine, i, j,
						  addresses + bytes * total++,
						  bytes));
	}
	CHECK(!fab_peer_add(side->engine, 1, cookie, addresses, bytes, lanes,
			    other->engine->worker_count));
	side_await(side, FAB_PEER_ADDED, &completion);
	CHECK(completion.status == 0);
	side->peer = completion.peer;
	side->path_count = fab_peer_path_count(side->engine, side->peer);
	for (uint32_t i = 0; i < side->path_count; i++)
		side->slots[i] = fab_peer_slot(side->engine, side->peer, i);
}

void pair_connect_beating(struct side *a, struct side *b, uint64_t heartbeat_ns)
{
	side_add(a, b, 0x1111);
	side_add(b, a, 0x2222);
	CHECK(!fab_peer_attach(a->engine, a->peer, b->slots, b->path_count,
			       b->cookie, heartbeat_ns));
	CHECK(!fab_peer_attach(b->engine, b->peer, a->slots, a->path_count,
			       a->cookie, heartbeat_ns));
}

void pair_connect(struct side *a, struct side *b)
{
	pair_connect_beating(a, b, 0);
}

void pair_open(struct side *a, struct side *b, const char *provider,
	       const struct fab_options *options)
{
	side_open(a, provider, options);
	side_open(b, provider, options);
	pair_connect(a, b);
}

void side_close(struct side *side)
{
	struct fab_completion completion;

	fab_engine_stop(side->engine);
	for (uint32_t i = 0; i < side->engine->worker_count; i++)
		side_await(side, FAB_WORKER_CLOSED, &completion);
	fab_engine_close(side->engine);
}

void pair_close(struct side *a, struct side *b)
{
	side_close(a);
	side_close(b);
}

struct fab_region *side_register(struct side *side, void *memory,
				 uint64_t bytes, uint32_t access)
{
	static uint64_t key = 1000;
	struct fab_completion completion;
	struct fab_region *region;

	CHECK(!fab_region_register(side->engine, 2,
				   (uint64_t) (uintptr_t) memory, bytes, access,
				   ++key, UINT64_MAX, &region));
	side_await(side, FAB_REGION_REGISTERED, &completion);
	CHECK(completion.status == 0);
	return region;
}

struct fab_remote side_remote(const struct fab_region *region, uint64_t *keys)
{
	struct fab_remote remote = {.base = fab_region_base(region),
				    .workers = region->workers,
				    .keys = keys};

	for (uint32_t i = 0; i < FAB_MAX_WORKERS; i++) {
		const struct fab_registration *part = region->parts[i];

		for (uint32_t j = 0; part && j < part->lane_count; j++)
			keys[remote.key_count++] = fab_region_key(region, i, j);
	}
	return remote;
}

void side_deregister(struct side *side, struct fab_region *region)
{
	struct fab_completion completion;

	CHECK(!fab_region_deregister(side->engine, region));
	side_await(side, FAB_REGION_DEREGISTERED, &completion);
}
