/* Frames and immediates that no peer should send, at random: the one that sends
 * them may be lost, and nobody else; nothing is read or written out of place. */
#include "fake_lane.h"

#include <string.h>

#define SEEDS    4000u
#define DEEDS    40u
#define PAGE     64u
#define PAGES    4u
#define SEQUENCE 1000u

static uint64_t below(uint64_t *state, uint64_t limit)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (*state >> 33) % limit;
}

/* Numbers that nobody means, and small ones. */
static uint64_t number(uint64_t *state)
{
	static const uint64_t absurd[] = {
		UINT64_MAX, 1ull << 63, UINT32_MAX, 1ull << 32, 65536, 0,
	};

	if (below(state, 2))
		return below(state, 8);
	return absurd[below(state, sizeof(absurd) / sizeof(absurd[0]))];
}

static uint32_t draw_immediate(uint64_t *state, uint32_t peer)
{
	return fab_immediate(
		below(state, 4) ? peer : (uint32_t) below(state, 65536),
		(uint32_t) below(state, 256), (uint32_t) below(state, 256));
}

static void send_announce(struct fake *fake, uint32_t peer, uint64_t *state)
{
	struct fab_announce announce = {
		.sequence = number(state),
		.count = number(state),
		.key = below(state, 2) ? FAKE_KEY : number(state),
		.immediate = draw_immediate(state, peer),
		.status = below(state, 3) ? 0 : (int32_t) number(state),
		.flags = (uint32_t) below(state, 64),
		.access = (uint32_t) below(state, 8),
		.parts = (uint32_t) number(state),
		.part = (uint32_t) number(state),
		.from_path = (uint32_t) number(state),
		.from_immediate = draw_immediate(state, peer),
	};

	fake_frame(fake, peer, FAB_FRAME_ANNOUNCE, &announce, sizeof(announce));
}

static void send_confirm(struct fake *fake, uint32_t peer, uint64_t *state)
{
	struct fab_confirm confirm = {
		.sequence = number(state),
		.counted = number(state),
		.immediate = draw_immediate(state, peer),
		.status = (int32_t) number(state),
	};

	fake_frame(fake, peer, FAB_FRAME_CONFIRM, &confirm, sizeof(confirm));
}

/* Any kind and length; often those that fit together. */
static void send_bytes(struct fake *fake, uint32_t peer, uint64_t *state)
{
	static const uint32_t lengths[] = {
		sizeof(struct fab_announce), sizeof(struct fab_confirm),
		sizeof(struct fab_proof),    sizeof(struct fab_beat),
		sizeof(struct fab_place),    0,
	};
	unsigned char bytes[FAKE_FRAME_BYTES];
	uint32_t length = lengths[below(state, 6)];

	if (!below(state, 3))
		length = (uint32_t) below(state, sizeof(bytes));
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = (unsigned char) below(state, 256);
	fake_frame(fake, peer, (uint32_t) below(state, 32), bytes, length);
}

static void do_something(struct fake *fake, uint32_t peer, uint64_t *state)
{
	switch (below(state, 5)) {
	case 0:
		send_announce(fake, peer, state);
		break;
	case 1:
		send_confirm(fake, peer, state);
		break;
	case 2:
		send_bytes(fake, peer, state);
		break;
	case 3:
		fake_immediate(fake, draw_immediate(state, peer));
		break;
	default:
		fake_immediate(fake, (uint32_t) number(state));
		break;
	}
	fake_run(fake);
}

static void reap_all(struct fake *fake)
{
	struct fab_completion completion;

	while (fake_reap(fake, &completion))
		CHECK(completion.kind != FAB_WORKER_FAILED);
}

/* A write to a peer that is honest ends well. */
static void check_write(struct fake *fake, uint32_t peer,
			struct fab_region *region)
{
	struct fab_completion completion;
	struct fab_transfer *transfer;
	size_t first = fake->post_count;

	transfer = fake_start(fake, peer, FAB_TRANSFER_CONFIRM, SEQUENCE,
			      region, PAGE, PAGES);
	fake_run(fake);
	fake_complete_all(fake, first);
	fake_run(fake);
	fake_answer(fake, peer, fake_last_frame(fake, FAB_FRAME_ANNOUNCE), 0,
		    fake_last_frame(fake, FAB_FRAME_ANNOUNCE)->announce.count);
	fake_run(fake);
	do {
		fake_expect(fake, FAB_TRANSFER_DONE, &completion);
	} while (completion.token != SEQUENCE);
	CHECK(completion.status == 0);
	CHECK(!fab_transfer_release(fake->engine, transfer));
}

/* 1 if the hostile peer was lost. */
static uint32_t test_seed(uint64_t seed)
{
	struct fab_region *region;
	struct fake fake;
	uint32_t hostile, honest, lost;
	uint64_t state = seed;

	fake_open(&fake, NULL, NULL);
	region = fake_region(&fake, (uint64_t) PAGE * PAGES);
	hostile = fake_peer(&fake);
	honest = fake_peer(&fake);
	for (uint32_t i = 0; i < 1 + below(&state, DEEDS); i++) {
		do_something(&fake, hostile, &state);
		if (!below(&state, 8))
			fake_complete_all(&fake, 0);
		if (!below(&state, 8))
			fake_tick(&fake, FAKE_SECOND_NS);
	}
	fake_complete_all(&fake, 0);
	fake_run(&fake);
	reap_all(&fake);
	CHECK(!fake.worker->failed);
	lost = fake_slot(&fake, hostile)->state != FAB_PEER_ATTACHED;
	CHECK(fake_slot(&fake, honest)->state == FAB_PEER_ATTACHED);
	check_write(&fake, honest, region);
	CHECK(!fab_region_deregister(fake.engine, region));
	fake_run(&fake);
	reap_all(&fake);
	fake_close(&fake);
	return lost;
}

int main(void)
{
	uint32_t lost = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++)
		lost += test_seed(seed);
	CHECK(lost > SEEDS / 4 && lost < SEEDS);
	return 0;
}
