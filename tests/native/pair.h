/* Two engines in one process, connected, for native tests. */
#ifndef FAB_TEST_PAIR_H
#define FAB_TEST_PAIR_H

#include "check.h"
#include "fabricio.h"

struct side {
	struct fab_engine *engine;
	uint32_t peer;                   /* our number for the other side */
	uint32_t slots[FAB_MAX_WORKERS]; /* and our workers' slots */
	uint32_t path_count;
	uint64_t cookie;
	struct fab_attributes attributes;
};

/* Open one engine, or close it. Exits 77 (skip) when the provider does not
 * exist here. */
void side_open(struct side *side, const char *provider,
	       const struct fab_options *options);
void side_close(struct side *side);

/* Attach two open engines to each other; or open them and do that. */
void pair_connect(struct side *a, struct side *b);
void pair_connect_beating(struct side *a, struct side *b,
			  uint64_t heartbeat_ns);
void pair_open(struct side *a, struct side *b, const char *provider,
	       const struct fab_options *options);
void pair_close(struct side *a, struct side *b);

/* Reap until a completion of this kind comes; others are dropped. Frames stay
 * valid until the next. Bounded by 20 s. */
void side_await(struct side *side, uint32_t kind,
		struct fab_completion *completion);

struct fab_region *side_register(struct side *side, void *memory,
				 uint64_t bytes, uint32_t access);
/* As the peer would name it; keys are put into `keys`. */
struct fab_remote side_remote(const struct fab_region *region, uint64_t *keys);
void side_deregister(struct side *side, struct fab_region *region);

#endif
