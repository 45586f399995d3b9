/* Memory of other processes: copies, processes that end, and queues in which
 * they hold places. */
#include "source.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define COPIED 30u

static uint64_t token = 77;

/* The peer says where its process is found. */
static void say_process(struct source *source, pid_t id, uint64_t said)
{
	struct fab_process process = {
		.id = (uint64_t) id,
		.place = (uint64_t) (uintptr_t) &token,
		.token = said,
	};

	source->fake.lane->attaches = 1;
	fake_frame(&source->fake, source->peer, FAB_FRAME_PROCESS, &process,
		   sizeof(process));
	fake_run(&source->fake);
}

static struct fab_transfer *copy_to(struct source *source, void *far)
{
	struct fab_remote remote = fake_remote();
	struct fab_transfer *transfer;

	remote.base = (uint64_t) (uintptr_t) far;
	transfer = fake_start_to(&source->fake, source->peer, WRITE, 1,
				 source->region, PAGE, COPIED, &remote);
	fake_pass(&source->fake); /* a copy is no post, which fake_run needs */
	fake_run(&source->fake);
	return transfer;
}

/* A1, A4, T5: pages of a process of this host are copied without the provider,
 * once it was reached and has called the key good, which it is asked at the
 * start. Nobody counts them. Memory that is not there is an error. */
static void test_a_copies(void)
{
	static unsigned char near[PAGE * COPIED], far[PAGE * COPIED];
	struct fab_transfer *transfer;
	const struct fake_post *asked;
	struct source source;
	struct fab_peer *peer;

	source_open(&source, 64);
	peer = fake_slot(&source.fake, source.peer);
	fake_registration(source.region)->address = (uintptr_t) near;
	say_process(&source, getpid(), token + 1);
	CHECK(!peer->cma.process);
	say_process(&source, getpid(), token);
	CHECK(peer->cma.process == getpid());
	memset(near, 1, sizeof(near));
	transfer = copy_to(&source, far);
	source_check_announced(&source, COPIED, 0, 0);
	asked = fake_last_frame(&source.fake, FAB_FRAME_PROVE);
	CHECK(asked->proof.key == fake_part(transfer)->remote_keys[0]);
	CHECK(asked->proof.access == FAB_ACCESS_REMOTE_WRITE);
	fake_frame(&source.fake, source.peer, FAB_FRAME_PROVEN, &asked->proof,
		   sizeof(asked->proof));
	source_complete(&source);
	source_answer(&source, 0, COPIED);
	source_expect_done(&source, 1, 0, 1);
	source_release(&source, transfer);
	source_complete(&source);
	CHECK(far[0] == 0);

	source.fake.post_count = 0;
	transfer = copy_to(&source, far);
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == 0);
	CHECK(!memcmp(near, far, sizeof(near)));
	source_check_announced(&source, 0, 0, 0);
	source_complete(&source);
	source_answer(&source, 0, 0);
	source_expect_done(&source, 1, 0, 1);
	source_release(&source, transfer);
	source_complete(&source);

	transfer = copy_to(&source, (void *) 64);
	source_complete(&source);
	source_expect_done(&source, 1, -FI_EFAULT, 1);
	source_answer(&source, -FI_ECANCELED, 0);
	source_release(&source, transfer);
	source_complete(&source);
	source_close(&source);
}

/* One that does nothing, and ends with this one at the latest. */
static pid_t begin_process(void)
{
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return child;
}

static void end_process(pid_t child)
{
	int status;

	CHECK(!kill(child, SIGKILL));
	CHECK(waitpid(child, &status, 0) == child);
}

/* A2: nothing is copied to a process that has ended: the peer is lost. */
static void test_a2_ended(void)
{
	struct fab_proof proof = {.key = FAKE_KEY,
				  .access = FAB_ACCESS_REMOTE_WRITE};
	struct fab_completion failed;
	struct fab_transfer *transfer;
	struct source source;
	pid_t child = begin_process();

	source_open(&source, 64);
	say_process(&source, child, token);
	fake_frame(&source.fake, source.peer, FAB_FRAME_PROVEN, &proof,
		   sizeof(proof));
	fake_run(&source.fake);
	end_process(child);
	transfer = copy_to(&source, &token);
	CHECK(token == 77);
	fake_expect(&source.fake, FAB_PEER_FAILED, &failed);
	CHECK(failed.status == -FI_ESHUTDOWN);
	source_expect_done(&source, 1, -FI_ESHUTDOWN, 1);
	source_release(&source, transfer);
	source_close(&source);
}

/* O1: what is out for a process that has ended is buried: its memory is quiet,
 * and its slots stay taken. */
static void test_o1_burial(void)
{
	struct fab_transfer *transfer;
	struct fab_completion quiet;
	struct source source;
	pid_t child = begin_process();

	source_open(&source, 64);
	say_process(&source, child, token);
	CHECK(fake_slot(&source.fake, source.peer)->cma.process == child);
	transfer = source_start(&source, WRITE, 1, 3);
	CHECK(fake_count(&source.fake, FAKE_WRITE, 0) == 3);
	fake_tick(&source.fake, TIMEOUT + 1);
	source_expect_done(&source, 1, -FI_ETIMEDOUT, 0);
	fab_peer_break(source.fake.worker, fake_slot(&source.fake, source.peer),
		       -FI_ETIMEDOUT, "fi_cq_read", NULL);
	fake_tick(&source.fake, 1);
	fake_expect(&source.fake, FAB_PEER_FAILED, &quiet);
	fake_expect_none(&source.fake);
	end_process(child);
	fake_tick(&source.fake, 1);
	fake_expect(&source.fake, FAB_TRANSFER_QUIET, &quiet);
	CHECK(source.fake.lane->buried >= 3);
	CHECK(source.fake.lane->ops.used == source.fake.lane->buried);
	source_release(&source, transfer);
	source_close(&source);
}

/* O1: buried operations take up the lane; before it is full the engine says
 * so. */
static void test_o1_exhaustion(void)
{
	struct fab_transfer *transfer;
	struct fab_completion failed;
	struct source source;
	pid_t child = begin_process();

	source_open(&source, 200);
	say_process(&source, child, token);
	transfer = source_start(&source, WRITE, 1, 200);
	CHECK(source.fake.lane->inflight_count == 200);
	end_process(child);
	fab_peer_break(source.fake.worker, fake_slot(&source.fake, source.peer),
		       -FI_ETIMEDOUT, "fi_cq_read", NULL);
	fake_tick(&source.fake, 1);
	fake_expect(&source.fake, FAB_PEER_FAILED, &failed);
	source_expect_done(&source, 1, -FI_ETIMEDOUT, 1);
	fake_expect(&source.fake, FAB_WORKER_FAILED, &failed);
	CHECK(failed.status == -FI_ENOSPC);
	source_release(&source, transfer);
	source_close(&source);
}

/* A lane that hears nothing speaks to itself; what arrives is the answer,
 * whoever sent it; without one it does not hear. */
static void test_hears(void)
{
	struct source source;
	struct fab_lane *lane;
	uint64_t now;

	source_open(&source, 64);
	lane = source.fake.lane;
	now = lane->heard_ns + TIMEOUT;
	CHECK(fab_lane_hears(lane, now, TIMEOUT)); /* no shared memory */
	lane->attaches = 1;
	source.fake.post_count = 0;
	CHECK(fab_lane_hears(lane, now - 1, TIMEOUT));
	CHECK(source.fake.post_count == 0);
	CHECK(fab_lane_hears(lane, now, TIMEOUT));
	CHECK(fake_count(&source.fake, FAKE_SEND, 0) == 1);
	CHECK(fab_lane_hears(lane, now + TIMEOUT - 1, TIMEOUT));
	CHECK(!fab_lane_hears(lane, now + TIMEOUT, TIMEOUT));
	source.fake.worker->now_ns = now + TIMEOUT;
	source_hear(&source);
	CHECK(fab_lane_hears(lane, now + TIMEOUT, TIMEOUT));
	CHECK(!lane->asked_ns);
	source_close(&source);
}

int main(void)
{
	test_a_copies();
	test_a2_ended();
	test_o1_burial();
	test_o1_exhaustion();
	test_hears();
	return 0;
}
