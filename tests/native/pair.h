/* Two engines in one process, connected, for native tests. */
#ifndef FAB_TEST_PAIR_H
#define FAB_TEST_PAIR_H

#include "fabricio.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                   \
	do {                                                               \
		if (!(condition)) {                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, \
				#condition);                               \
			exit(1);                                           \
		}                                                          \
	} while (0)

struct side {
	struct fab_engine *engine;
	uint32_t peer; /* our slot for the other side */
	uint64_t cookie;
	struct fab_attributes attributes;
};

/* Open both engines and attach them to each other. Exits 77 (skip) when the
 * provider does not exist here. */
void pair_open(struct side *a, struct side *b, const char *provider,
	       const struct fab_options *options);
void pair_close(struct side *a, struct side *b);

/* Reap until a completion of this kind comes; others are dropped. Frames stay valid until the next. Bounded by 20 s. */
void side_await(struct side *side, uint32_t kind,
		struct fab_completion *completion);

struct fab_region *side_register(struct side *side, void *memory,
				 uint64_t bytes, uint32_t access);
void side_deregister(struct side *side, struct fab_region *region);

#endif
