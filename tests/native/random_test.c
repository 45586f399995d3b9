/* Two engines over scripted lanes and a network that delays, reorders and, in
 * some runs, fails: whatever happens, each transfer ends once (T1), what ended
 * well has arrived whole (T5, C3), and nothing is left behind (T3, T4). */
#include "fake_lane.h"

#include <string.h>

#define PAGE      64u
#define TRANSFERS 60u
#define STEPS     4000u

struct world {
	struct fake ends[2];
	uint32_t peers[2];
	struct fab_region *region; /* at the source */
	struct fab_transfer *transfers[TRANSFERS];
	size_t carried[2]; /* frames of each end that have left */
	uint64_t state;
	uint32_t started;
	uint32_t error_rate; /* one operation in so many fails; 0: none */
	uint32_t flags[TRANSFERS];
	uint32_t pages[TRANSFERS];
	uint32_t landed[TRANSFERS]; /* operations of it at the target */
	int32_t status[TRANSFERS];
	uint8_t done[TRANSFERS], quiet[TRANSFERS], arrived[TRANSFERS];
	uint8_t cancelled[TRANSFERS], released[TRANSFERS];
};

static void world_open(struct world *world, uint64_t seed, uint32_t error_rate)
{
	struct fake_limits limits = {
		.operation_bytes = PAGE,
		.inflight_count = 20,
	};

	memset(world, 0, sizeof(*world));
	world->state = seed * 77 + 1;
	world->error_rate = error_rate;
	for (int i = 0; i < 2; i++) {
		fake_open(&world->ends[i], NULL, &limits);
		world->peers[i] = fake_peer_open(&world->ends[i]);
	}
	for (int i = 0; i < 2; i++)
		CHECK(!fab_peer_attach(world->ends[i].engine, world->peers[i],
				       &world->peers[1 - i], 1, FAKE_COOKIE,
				       0));
	world->region = fake_region(&world->ends[0], 1 << 20);
	(void) fake_region(&world->ends[1], 1 << 20);
}

static void start(struct world *world)
{
	static const uint32_t kinds[] = {
		0,
		FAB_TRANSFER_CONFIRM,
		FAB_TRANSFER_NOTIFY,
		FAB_TRANSFER_CONFIRM | FAB_TRANSFER_NOTIFY,
		FAB_TRANSFER_READ,
		FAB_TRANSFER_READ | FAB_TRANSFER_CONFIRM,
		FAB_TRANSFER_READ | FAB_TRANSFER_NOTIFY,
	};
	uint32_t i = world->started;

	if (i == TRANSFERS)
		return;
	world->flags[i] = kinds[random_below(&world->state, 7)];
	world->pages[i] = (uint32_t) random_below(&world->state, 30);
	world->transfers[i] =
		fake_start(&world->ends[0], world->peers[0], world->flags[i], i,
			   world->region, PAGE, world->pages[i]);
	world->started++;
}

static void cancel(struct world *world)
{
	uint64_t i = random_below(&world->state, TRANSFERS);

	if (i >= world->started || world->released[i] ||
	    random_below(&world->state, 4))
		return;
	world->cancelled[i] = 1;
	CHECK(!fab_transfer_cancel(world->ends[0].engine, world->transfers[i]));
}

/* Frames of one end reach the other in order; delayed, but for a burst. */
static void carry_frames(struct world *world, int from)
{
	struct fake *source = &world->ends[from];
	struct fake *target = &world->ends[1 - from];
	size_t burst = random_below(&world->state, 4);
	size_t *at = &world->carried[from];

	for (; burst && *at < source->post_count; (*at)++) {
		struct fake_post *post = &source->posts[*at];

		if (post->kind != FAKE_SEND)
			continue;
		if (target->receive_count == 0)
			return;
		CHECK(post->header.peer == world->peers[1 - from]);
		fake_complete(source, *at, 0);
		if (post->header.kind == FAB_FRAME_ANNOUNCE)
			fake_announce(target, post->header.peer,
				      &post->announce);
		else if (post->header.kind != FAB_FRAME_CONFIRM)
			fake_frame(target, post->header.peer, post->header.kind,
				   &post->proof, sizeof(post->proof));
		else
			fake_frame(target, post->header.peer, FAB_FRAME_CONFIRM,
				   &post->confirm, sizeof(post->confirm));
		burst--;
	}
}

/* Land some operation that is out, not the oldest as a rule. The target sees
 * it before the source does, or the other way round. */
static void land(struct world *world)
{
	struct fake *source = &world->ends[0];
	size_t i = random_below(&world->state, source->post_count + 1);
	struct fake_post *post;
	uint64_t number;

	while (i < source->post_count &&
	       (source->posts[i].done || source->posts[i].kind == FAKE_SEND))
		i++;
	if (i >= source->post_count)
		return;
	post = &source->posts[i];
	number = ((struct fab_op *) post->context)->part->sequence;
	if (world->error_rate &&
	    random_below(&world->state, world->error_rate) == 0) {
		fake_complete(source, i, FI_EACCES);
		return;
	}
	world->landed[number]++;
	fake_complete(source, i, 0);
	if (post->has_immediate)
		fake_immediate(&world->ends[1], post->immediate);
}

static void reap_source(struct world *world)
{
	struct fab_completion completion;

	while (fake_reap(&world->ends[0], &completion)) {
		uint64_t i = completion.token;

		CHECK(completion.kind == FAB_TRANSFER_DONE);
		CHECK(i < world->started && !world->done[i]); /* T1 */
		CHECK(completion.quiet);
		world->done[i] = 1;
		world->status[i] = completion.status;
		if (completion.status == -FI_ECANCELED)
			CHECK(world->cancelled[i]);
		else
			CHECK(completion.status == 0 ||
			      completion.status == -FI_EACCES);
		if (completion.status == 0)
			CHECK(world->landed[i] == world->pages[i]);
		CHECK(fab_transfer_pages_done(world->transfers[i]) ==
		      world->landed[i]);
	}
	for (uint32_t i = 0; i < world->started; i++) {
		if (!world->done[i] || world->released[i] ||
		    random_below(&world->state, 3))
			continue;
		world->released[i] = 1;
		CHECK(!fab_transfer_release(world->ends[0].engine,
					    world->transfers[i]));
	}
}

static void reap_target(struct world *world)
{
	struct fab_completion completion;

	while (fake_reap(&world->ends[1], &completion)) {
		uint64_t i = completion.sequence;

		CHECK(completion.kind == FAB_TRANSFER_ARRIVED);
		CHECK(i < world->started && !world->arrived[i]);
		CHECK(world->flags[i] & FAB_TRANSFER_NOTIFY);
		world->arrived[i] = 1;
		if (completion.status == 0)
			CHECK(world->landed[i] == world->pages[i]);
		else
			CHECK(world->cancelled[i] || world->error_rate);
	}
}

static void step(struct world *world)
{
	switch (random_below(&world->state, 12)) {
	case 0:
		start(world);
		break;
	case 1:
		cancel(world);
		break;
	case 2:
		world->ends[0].again = random_below(&world->state, 3);
		break;
	case 3:
		world->ends[1].again = random_below(&world->state, 3);
		world->ends[1].recv_again = random_below(&world->state, 3);
		break;
	case 4:
		reap_source(world);
		reap_target(world);
		break;
	case 5:
	case 6:
		carry_frames(world, (int) random_below(&world->state, 2));
		break;
	case 7:
		fake_pass(&world->ends[random_below(&world->state, 2)]);
		break;
	case 8:
		/* Within the patience of all queries. */
		for (int i = 0; i < 2; i++)
			fake_tick(&world->ends[i], FAKE_SECOND_NS / 100);
		break;
	default:
		land(world);
		break;
	}
}

static int world_over(const struct world *world)
{
	for (uint32_t i = 0; i < TRANSFERS; i++) {
		if (!world->released[i])
			return 0;
		if (world->flags[i] & FAB_TRANSFER_NOTIFY && !world->arrived[i])
			return 0;
	}
	return !world->ends[0].worker->outstanding &&
	       !world->ends[1].worker->outstanding;
}

static void run(uint64_t seed, uint32_t error_rate)
{
	static struct world world;

	world_open(&world, seed, error_rate);
	for (uint32_t i = 0; i < STEPS; i++)
		step(&world);
	for (int rounds = 0; !world_over(&world); rounds++) {
		CHECK(rounds < 20000);
		start(&world);
		land(&world);
		for (int i = 0; i < 2; i++) {
			carry_frames(&world, i);
			fake_pass(&world.ends[i]);
			fake_tick(&world.ends[i], FAKE_SECOND_NS / 100);
		}
		reap_source(&world);
		reap_target(&world);
	}
	for (uint32_t i = 0; i < TRANSFERS; i++) {
		if (!error_rate && !world.cancelled[i])
			CHECK(world.status[i] == 0);
	}
	for (int i = 0; i < 2; i++) {
		CHECK(world.ends[i].lane->ops.used == 0);
		CHECK(world.ends[i].lane->inflight_count == 0);
		CHECK(!world.ends[i].worker->statistics.stray_completions);
		CHECK(!world.ends[i].worker->statistics.malformed_frames);
	}
	CHECK(!world.ends[1].worker->statistics.stale_immediates || error_rate);
	CHECK(fake_registration(world.region)->transfers == 0);
	fake_close(&world.ends[0]);
	fake_close(&world.ends[1]);
}

int main(void)
{
	for (uint64_t seed = 1; seed <= 100; seed++) {
		run(seed, 0);
		run(seed, 40);
	}
	return 0;
}
