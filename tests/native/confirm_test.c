/* confirm.h on the target: C1 to C8, with frames and immediates by hand. */
#include "fake_lane.h"

#include <errno.h>

#define SLOT 5u

struct target {
	struct fake fake;
	uint32_t peer;
};

static void open_target(struct target *target)
{
	fake_open(&target->fake, NULL, NULL);
	target->peer = fake_peer(&target->fake);
}

static uint32_t value(const struct target *target, uint32_t generation)
{
	return fab_immediate(target->peer, SLOT, generation);
}

static void arrive(struct target *target, uint32_t immediate, uint64_t times)
{
	for (uint64_t i = 0; i < times; i++)
		fake_immediate(&target->fake, immediate);
	fake_run(&target->fake);
}

static void announce(struct target *target, uint64_t sequence, uint64_t count,
		     uint32_t immediate, int32_t status, uint32_t flags)
{
	struct fab_announce announce = {
		.parts = 1,
		.sequence = sequence,
		.count = count,
		.immediate = immediate,
		.status = status,
		.flags = flags,
	};

	fake_announce(&target->fake, target->peer, &announce);
	fake_run(&target->fake);
}

static size_t confirms(const struct target *target)
{
	return fake_count_frames(&target->fake, FAB_FRAME_CONFIRM, 0);
}

/* The newest confirmation says this. */
static void check_confirm(struct target *target, uint64_t sequence,
			  uint64_t counted, uint32_t immediate, int32_t status)
{
	const struct fake_post *post =
		fake_last_frame(&target->fake, FAB_FRAME_CONFIRM);

	CHECK(post->confirm.sequence == sequence);
	CHECK(post->confirm.counted == counted);
	CHECK(post->confirm.immediate == immediate);
	CHECK(post->confirm.status == status);
	CHECK(post->header.peer == FAKE_REMOTE_SLOT);
	CHECK(post->header.cookie == FAKE_REMOTE_COOKIE);
}

static void expect_arrived(struct target *target, uint64_t sequence,
			   int32_t status)
{
	struct fab_completion arrived;

	fake_expect(&target->fake, FAB_TRANSFER_ARRIVED, &arrived);
	CHECK(arrived.peer == target->peer);
	CHECK(arrived.sequence == sequence && arrived.status == status);
}

#define COUNTER(target, name) \
	atomic_load(&(target)->fake.worker->statistics.name)

/* An immediate value holds its three parts. */
static void test_c1_parts(void)
{
	for (uint32_t peer = 0; peer < 65536; peer += 4369) {
		for (uint32_t slot = 0; slot < FAB_TRANSFER_SLOTS; slot += 93) {
			uint32_t made = fab_immediate(peer, slot, slot % 64);

			CHECK(fab_immediate_peer(made) == peer);
			CHECK(fab_immediate_slot(made) == slot);
			CHECK(fab_immediate_generation(made) == slot % 64);
		}
	}
}

/* C7: a source that begins again is forgotten, and told so; unless all had
 * arrived before. */
static void test_c7_restart(void)
{
	struct target target;

	open_target(&target);
	arrive(&target, value(&target, 0), 2);
	announce(&target, 7, 5, value(&target, 0), 0,
		 FAB_ANNOUNCE_RESTART | FAB_ANNOUNCE_NOTIFY);
	check_confirm(&target, 7, 2, value(&target, 0), -FI_ECANCELED);
	arrive(&target, value(&target, 0), 1); /* late */
	CHECK(COUNTER(&target, stale_immediates) == 1);
	announce(&target, 7, 5, value(&target, 0), 0,
		 FAB_ANNOUNCE_RESTART | FAB_ANNOUNCE_QUERY); /* C4 */
	check_confirm(&target, 7, 2, value(&target, 0), -FI_ECANCELED);
	CHECK(confirms(&target) == 2);
	fake_expect_none(&target.fake);
	announce(&target, 7, 5, value(&target, 1), 0, FAB_ANNOUNCE_NOTIFY);
	arrive(&target, value(&target, 1), 5);
	check_confirm(&target, 7, 5, value(&target, 1), 0);
	expect_arrived(&target, 7, 0);
	announce(&target, 7, 5, value(&target, 1), 0, FAB_ANNOUNCE_RESTART);
	check_confirm(&target, 7, 5, value(&target, 1), 0);
	/* Before anything of it has come. */
	announce(&target, 8, 3, value(&target, 2), 0, FAB_ANNOUNCE_RESTART);
	check_confirm(&target, 8, 0, value(&target, 2), -FI_ECANCELED);
	fake_expect_none(&target.fake);
	fake_close(&target.fake);
}

/* C5: only a key that is good is called so. */
static void test_c5_proof(void)
{
	struct target target;
	struct fab_region *region;
	struct fab_proof proof = {.access = FAB_ACCESS_REMOTE_WRITE};
	const struct fake_post *answer;

	open_target(&target);
	region = fake_region(&target.fake, 4096);
	proof.key = fake_registration(region)->lanes[0].key;
	fake_frame(&target.fake, target.peer, FAB_FRAME_PROVE, &proof,
		   sizeof(proof));
	fake_run(&target.fake);
	answer = fake_last_frame(&target.fake, FAB_FRAME_PROVEN);
	CHECK(answer->proof.key == proof.key);
	CHECK(answer->proof.access == proof.access);
	proof.key++;
	fake_frame(&target.fake, target.peer, FAB_FRAME_PROVE, &proof,
		   sizeof(proof));
	fake_run(&target.fake);
	CHECK(fake_count_frames(&target.fake, FAB_FRAME_PROVEN, 0) == 1);
	fake_close(&target.fake);
}

static void test_c2_before_the_announcement(void)
{
	struct target target;

	open_target(&target);
	arrive(&target, value(&target, 0), 3);
	CHECK(confirms(&target) == 0);
	announce(&target, 40, 3, value(&target, 0), 0, FAB_ANNOUNCE_NOTIFY);
	CHECK(confirms(&target) == 1);
	check_confirm(&target, 40, 3, value(&target, 0), 0);
	expect_arrived(&target, 40, 0);
	CHECK(COUNTER(&target, transfers_confirmed) == 1);
	fake_close(&target.fake);
}

static void test_c2_after_the_announcement(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 40, 3, value(&target, 0), 0, FAB_ANNOUNCE_NOTIFY);
	arrive(&target, value(&target, 0), 2);
	CHECK(confirms(&target) == 0);
	fake_expect_none(&target.fake);
	arrive(&target, value(&target, 0), 1);
	check_confirm(&target, 40, 3, value(&target, 0), 0);
	expect_arrived(&target, 40, 0);
	fake_close(&target.fake);
}

/* Nobody asked for a notification, or there was nothing to count. */
static void test_c3_silent_and_empty(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 1, 1, value(&target, 0), 0, 0);
	arrive(&target, value(&target, 0), 1);
	check_confirm(&target, 1, 1, value(&target, 0), 0);
	announce(&target, 2, 0, value(&target, 1), 0, FAB_ANNOUNCE_NOTIFY);
	check_confirm(&target, 2, 0, value(&target, 1), 0);
	expect_arrived(&target, 2, 0);
	fake_expect_none(&target.fake);
	CHECK(confirms(&target) == 2);
	fake_close(&target.fake);
}

static void expect_broken(struct target *target)
{
	struct fab_completion failed;

	fake_expect(&target->fake, FAB_PEER_FAILED, &failed);
	CHECK(failed.peer == target->peer && failed.status == -EPROTO);
	CHECK(fake_slot(&target->fake, target->peer)->state == FAB_PEER_BROKEN);
	fake_expect_none(&target->fake);
}

/* C3: more than announced is the peer's error. */
static void test_c3_more_than_announced(void)
{
	struct target target;

	open_target(&target);
	arrive(&target, value(&target, 0), 4);
	announce(&target, 40, 3, value(&target, 0), 0, FAB_ANNOUNCE_NOTIFY);
	CHECK(confirms(&target) == 0);
	expect_broken(&target);
	fake_close(&target.fake);
}

/* After the confirmation, what still comes for the generation is stale. */
static void test_c3_after_the_confirmation(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 40, 1, value(&target, 0), 0, 0);
	arrive(&target, value(&target, 0), 3);
	CHECK(confirms(&target) == 1);
	CHECK(COUNTER(&target, stale_immediates) == 2);
	fake_expect_none(&target.fake);
	fake_close(&target.fake);
}

static void test_c3_announcements_differ(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 40, 3, value(&target, 0), 0, 0);
	announce(&target, 40, 4, value(&target, 0), 0, 0);
	expect_broken(&target);
	fake_close(&target.fake);
	open_target(&target);
	announce(&target, 40, 3, value(&target, 0), 0, 0);
	announce(&target, 41, 3, value(&target, 0), 0, 0);
	expect_broken(&target);
	fake_close(&target.fake);
}

static void test_announcement_for_another_peer(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 1, 1, fab_immediate(target.peer + 1, SLOT, 0), 0, 0);
	expect_broken(&target);
	fake_close(&target.fake);
	open_target(&target);
	announce(&target, 1, 1, value(&target, 0), 5, 0); /* no such status */
	expect_broken(&target);
	fake_close(&target.fake);
}

/* C4: a query is answered, open or over, and changes nothing. */
static void test_c4_queries(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 40, 3, value(&target, 0), 0, FAB_ANNOUNCE_NOTIFY);
	for (uint64_t i = 0; i < 3; i++) {
		announce(&target, 40, 3, value(&target, 0), 0,
			 FAB_ANNOUNCE_NOTIFY | FAB_ANNOUNCE_QUERY);
		CHECK(confirms(&target) == i + 1);
		check_confirm(&target, 40, i, value(&target, 0), -FI_EAGAIN);
		fake_expect_none(&target.fake);
		arrive(&target, value(&target, 0), 1);
	}
	CHECK(confirms(&target) == 4);
	check_confirm(&target, 40, 3, value(&target, 0), 0);
	expect_arrived(&target, 40, 0);
	announce(&target, 40, 3, value(&target, 0), 0,
		 FAB_ANNOUNCE_NOTIFY | FAB_ANNOUNCE_QUERY);
	CHECK(confirms(&target) == 5);
	check_confirm(&target, 40, 3, value(&target, 0), 0);
	fake_expect_none(&target.fake);
	CHECK(COUNTER(&target, transfers_confirmed) == 1);
	fake_close(&target.fake);
}

/* C6: the source gave up, and knows how many it has posted. */
static void test_c6_counted_abort(void)
{
	struct target target;

	open_target(&target);
	arrive(&target, value(&target, 0), 1);
	announce(&target, 40, 2, value(&target, 0), -FI_ECANCELED,
		 FAB_ANNOUNCE_NOTIFY);
	expect_arrived(&target, 40, -FI_ECANCELED);
	CHECK(confirms(&target) == 0);
	arrive(&target, value(&target, 0), 1);
	check_confirm(&target, 40, 2, value(&target, 0), 0);
	fake_expect_none(&target.fake);
	CHECK(COUNTER(&target, transfers_confirmed) == 0);
	fake_close(&target.fake);
}

/* C6: the first announcement was hopeful, then an operation failed. */
static void test_c6_abort_after_the_announcement(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 40, 5, value(&target, 0), 0, FAB_ANNOUNCE_NOTIFY);
	arrive(&target, value(&target, 0), 2);
	announce(&target, 40, 5, value(&target, 0), -FI_EIO,
		 FAB_ANNOUNCE_NOTIFY | FAB_ANNOUNCE_UNCOUNTED |
			 FAB_ANNOUNCE_QUERY);
	expect_arrived(&target, 40, -FI_EIO);
	check_confirm(&target, 40, 2, value(&target, 0), 0);
	arrive(&target, value(&target, 0), 3);
	CHECK(COUNTER(&target, stale_immediates) == 3);
	CHECK(confirms(&target) == 1);
	fake_expect_none(&target.fake);
	fake_close(&target.fake);
}

/* C6: nothing was counted yet when the source gave up. */
static void test_c6_uncounted_abort(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 40, 4, value(&target, 0), -FI_EIO,
		 FAB_ANNOUNCE_NOTIFY | FAB_ANNOUNCE_UNCOUNTED);
	expect_arrived(&target, 40, -FI_EIO);
	check_confirm(&target, 40, 0, value(&target, 0), 0);
	arrive(&target, value(&target, 0), 4);
	CHECK(COUNTER(&target, stale_immediates) == 4);
	announce(&target, 41, 1, value(&target, 1), 0, FAB_ANNOUNCE_NOTIFY);
	arrive(&target, value(&target, 1), 1);
	expect_arrived(&target, 41, 0);
	fake_close(&target.fake);
}

static void announce_key(struct target *target, uint64_t sequence, uint64_t key,
			 uint32_t access, uint32_t flags)
{
	struct fab_announce announce = {
		.parts = 1,
		.sequence = sequence,
		.key = key,
		.immediate = value(target, (uint32_t) sequence % 64),
		.access = access,
		.flags = flags | FAB_ANNOUNCE_NOTIFY,
	};

	fake_announce(&target->fake, target->peer, &announce);
	fake_run(&target->fake);
}

/* C5: the key must name an open region that grants the access. */
static void test_c5_keys(void)
{
	const uint32_t both = FAB_ACCESS_REMOTE_READ | FAB_ACCESS_REMOTE_WRITE;
	struct target target;
	struct fab_completion completion;
	struct fab_region *region;

	open_target(&target);
	region = fake_region(&target.fake, 100);
	announce_key(&target, 0, FAKE_KEY, both, 0);
	check_confirm(&target, 0, 0, value(&target, 0), 0);
	expect_arrived(&target, 0, 0);
	announce_key(&target, 1, FAKE_KEY + 1, FAB_ACCESS_REMOTE_WRITE, 0);
	check_confirm(&target, 1, 0, value(&target, 1), -FI_ENOKEY);
	expect_arrived(&target, 1, -FI_ENOKEY);
	announce_key(&target, 1, FAKE_KEY + 1, FAB_ACCESS_REMOTE_WRITE,
		     FAB_ANNOUNCE_QUERY); /* C4 */
	check_confirm(&target, 1, 0, value(&target, 1), -FI_ENOKEY);
	fake_expect_none(&target.fake);
	fake_registration(region)->access = FAB_ACCESS_REMOTE_READ;
	announce_key(&target, 2, FAKE_KEY, FAB_ACCESS_REMOTE_WRITE, 0);
	check_confirm(&target, 2, 0, value(&target, 2), -FI_EACCES);
	expect_arrived(&target, 2, -FI_EACCES);
	announce_key(&target, 3, FAKE_KEY, FAB_ACCESS_REMOTE_READ, 0);
	check_confirm(&target, 3, 0, value(&target, 3), 0);
	expect_arrived(&target, 3, 0);
	CHECK(!fab_region_deregister(target.fake.engine, region));
	announce_key(&target, 4, FAKE_KEY, FAB_ACCESS_REMOTE_READ, 0);
	fake_expect(&target.fake, FAB_REGION_DEREGISTERED, &completion);
	check_confirm(&target, 4, 0, value(&target, 4), -FI_ENOKEY);
	expect_arrived(&target, 4, -FI_ENOKEY);
	arrive(&target, value(&target, 4), 1); /* refused: stale */
	CHECK(COUNTER(&target, stale_immediates) == 1);
	fake_close(&target.fake);
}

/* C1: one slot through all generations and on, counts before and after the
 * announcement in turn; immediates of the last generation are stale. */
static void expect_outcome(struct target *target, uint64_t sequence,
			   uint32_t generation, int32_t outcome)
{
	const struct fab_peer *peer =
		fab_worker_peer(target->fake.worker, target->peer);

	CHECK(peer);
	CHECK(fab_confirm_outcome(&peer->arrivals, value(target, generation),
				  sequence) == outcome);
}

/* C8: what the loop was told of, well or not, is over. */
static void test_c8_outcomes(void)
{
	struct target target;

	open_target(&target);
	expect_outcome(&target, 60, 0, -FI_ECANCELED);
	announce(&target, 60, 2, value(&target, 0), 0, FAB_ANNOUNCE_NOTIFY);
	arrive(&target, value(&target, 0), 1);
	expect_outcome(&target, 60, 0, -FI_ECANCELED);
	arrive(&target, value(&target, 0), 1);
	expect_outcome(&target, 60, 0, 0);
	expect_outcome(&target, 61, 0, -FI_ECANCELED);
	expect_outcome(&target, 60, 1, -FI_ECANCELED);

	/* Given up, and not all that was posted has come. */
	announce(&target, 61, 2, value(&target, 1), -FI_EIO,
		 FAB_ANNOUNCE_NOTIFY);
	arrive(&target, value(&target, 1), 1);
	expect_outcome(&target, 61, 1, 0);
	arrive(&target, value(&target, 1), 1);
	expect_outcome(&target, 61, 1, 0);

	/* Refused. */
	announce_key(&target, 66, 77, FAB_ACCESS_REMOTE_WRITE, 0);
	expect_outcome(&target, 66, 2, -FI_ENOKEY);

	/* Forgotten. */
	announce(&target, 63, 2, value(&target, 3), 0, FAB_ANNOUNCE_RESTART);
	expect_outcome(&target, 63, 3, -FI_ECANCELED);
	fake_close(&target.fake);
}

static void test_c1_generations(void)
{
	struct target target;

	open_target(&target);
	for (uint64_t i = 0; i < 200; i++) {
		uint32_t now = value(&target, (uint32_t) i % 64);
		uint64_t early = i % 4;

		arrive(&target, now, early);
		announce(&target, i, 3, now, 0, FAB_ANNOUNCE_NOTIFY);
		arrive(&target, now, 3 - early);
		expect_arrived(&target, i, 0);
		check_confirm(&target, i, 3, now, 0);
		CHECK(confirms(&target) == i + 1);
		arrive(&target, now, 1);
		CHECK(COUNTER(&target, stale_immediates) == i + 1);
		fake_expect_none(&target.fake);
		fake_complete_all(&target.fake, 0);
		fake_run(&target.fake);
	}
	fake_close(&target.fake);
}

/* C6: a straggler of a generation that ended badly comes when the next one is
 * over as well: it must not be taken for a new transfer. */
static void test_c6_straggler(void)
{
	struct target target;

	open_target(&target);
	announce(&target, 1, 4, value(&target, 0), -FI_EIO,
		 FAB_ANNOUNCE_UNCOUNTED);
	announce(&target, 2, 1, value(&target, 1), 0, 0);
	arrive(&target, value(&target, 1), 1);
	check_confirm(&target, 2, 1, value(&target, 1), 0);
	arrive(&target, value(&target, 0), 1);
	CHECK(COUNTER(&target, stale_immediates) == 1);
	announce(&target, 3, 1, value(&target, 2), 0, FAB_ANNOUNCE_NOTIFY);
	arrive(&target, value(&target, 2), 1);
	expect_arrived(&target, 3, 0);
	check_confirm(&target, 3, 1, value(&target, 2), 0);
	fake_close(&target.fake);
}

/* Immediates for nobody. */
static void test_stale_peers(void)
{
	struct target target;

	open_target(&target);
	arrive(&target, fab_immediate(target.peer + 1, 0, 0), 1);
	arrive(&target, fab_immediate(65535, 1023, 63), 1);
	CHECK(COUNTER(&target, stale_immediates) == 2);
	CHECK(!fab_peer_remove(target.fake.engine, target.peer));
	fake_run(&target.fake);
	arrive(&target, value(&target, 0), 1);
	CHECK(COUNTER(&target, stale_immediates) == 3);
	fake_close(&target.fake);
}

/* The last slot: the table grows at once. */
static void test_high_slot(void)
{
	struct target target;
	uint32_t last;

	open_target(&target);
	last = fab_immediate(target.peer, FAB_TRANSFER_SLOTS - 1, 0);
	arrive(&target, value(&target, 0), 1);
	arrive(&target, last, 1);
	announce(&target, 2, 1, last, 0, FAB_ANNOUNCE_NOTIFY);
	expect_arrived(&target, 2, 0);
	announce(&target, 1, 1, value(&target, 0), 0, FAB_ANNOUNCE_NOTIFY);
	expect_arrived(&target, 1, 0);
	fake_close(&target.fake);
}

int main(void)
{
	test_c1_parts();
	test_c5_proof();
	test_c7_restart();
	test_c2_before_the_announcement();
	test_c2_after_the_announcement();
	test_c3_silent_and_empty();
	test_c3_more_than_announced();
	test_c3_after_the_confirmation();
	test_c3_announcements_differ();
	test_announcement_for_another_peer();
	test_c4_queries();
	test_c5_keys();
	test_c6_counted_abort();
	test_c6_abort_after_the_announcement();
	test_c6_uncounted_abort();
	test_c8_outcomes();
	test_c1_generations();
	test_stale_peers();
	test_high_slot();
	test_c6_straggler();
	return 0;
}
