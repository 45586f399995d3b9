/* Domains of several threads meet: arrivals (C1, C3), keys (D1) and endpoints
 * (P1) that go while others write. For the sanitizers above all. */
#include "sim_node.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define SENDERS 3
#define WRITES  2000u

struct sender {
	struct node node;
	struct node target; /* copy: what a peer was told */
	fi_addr_t to;
	uint64_t number;
	uint64_t succeeded;
	atomic_int *stop;  /* NULL: after WRITES */
	atomic_int failed; /* writer: the sender */
	pthread_t thread;
};

/* Wait for the CQ as a worker does. */
static ssize_t sleep_and_read(struct node *node,
			      struct fi_cq_data_entry *entries, size_t count)
{
	struct pollfd fd = {.events = POLLIN};
	struct fid *fid = &node->cq->fid;
	ssize_t ret;

	CHECK(!fi_control(fid, FI_GETWAIT, &fd.fd));
	while ((ret = fi_cq_read(node->cq, entries, count)) == -FI_EAGAIN) {
		if (!fi_trywait(node->fabric, &fid, 1))
			CHECK(poll(&fd, 1, -1) == 1);
	}
	return ret;
}

/* One completion, of whatever outcome. */
static int sender_reap(struct sender *sender)
{
	struct fi_cq_err_entry error = {0};
	struct fi_cq_data_entry entry;
	ssize_t ret;

	while ((ret = fi_cq_read(sender->node.cq, &entry, 1)) == -FI_EAGAIN)
		sched_yield();
	if (ret == 1) {
		sender->succeeded++;
		return 0;
	}
	CHECK(ret == -FI_EAVAIL);
	CHECK(fi_cq_readerr(sender->node.cq, &error, 0) == 1);
	CHECK(error.err == FI_EINVAL || error.err == FI_ENOTCONN);
	atomic_store(&sender->failed, 1);
	return error.err;
}

static void *sender_run(void *argument)
{
	struct sender *sender = argument;

	for (uint64_t i = 0;
	     sender->stop ? !atomic_load(sender->stop) : i < WRITES; i++) {
		CHECK(!node_write(&sender->node, sender->to, &sender->target,
				  (size_t) (64 * sender->number), 64,
				  sender->number << 16 | (i & 0xffff), NULL));
		if (sender_reap(sender) && !sender->stop)
			abort();
	}
	return NULL;
}

static void senders_start(struct sender *senders, const struct node *target,
			  atomic_int *stop)
{
	for (uint32_t i = 0; i < SENDERS; i++) {
		struct sender *sender = &senders[i];

		*sender = (struct sender) {.number = i,
					   .target = *target,
					   .stop = stop};
		node_open(&sender->node, 1 + i, 0);
		sender->to = node_insert(&sender->node, target);
	}
	for (uint32_t i = 0; i < SENDERS; i++)
		CHECK(!pthread_create(&senders[i].thread, NULL, sender_run,
				      &senders[i]));
}

static void senders_join(struct sender *senders)
{
	for (uint32_t i = 0; i < SENDERS; i++)
		CHECK(!pthread_join(senders[i].thread, NULL));
}

static void senders_close(struct sender *senders)
{
	for (uint32_t i = 0; i < SENDERS; i++)
		node_close(&senders[i].node);
}

/* C1, C3: every arrival is read once, in its sender's order, by a reader that
 * sleeps whenever it may. The queue is smaller than what is out. */
static void test_arrivals(void)
{
	struct sender senders[SENDERS];
	uint64_t next[SENDERS] = {0};
	struct node target;

	sim_settings("nics=4");
	node_open(&target, 0, 16);
	senders_start(senders, &target, NULL);
	for (uint64_t got = 0; got < SENDERS * WRITES;) {
		struct fi_cq_data_entry entries[8];
		ssize_t n = sleep_and_read(&target, entries, 8);

		CHECK(n > 0);
		for (ssize_t i = 0; i < n; i++) {
			uint64_t number = entries[i].data >> 16;

			CHECK(number < SENDERS);
			CHECK((entries[i].data & 0xffff) == next[number]++);
		}
		got += (uint64_t) n;
	}
	senders_join(senders);
	node_expect_nothing(&target);
	senders_close(senders);
	node_close(&target);
}

static void drain(struct node *node, uint64_t count)
{
	struct fi_cq_data_entry entry;

	while (count) {
		ssize_t ret = fi_cq_read(node->cq, &entry, 1);

		CHECK(ret == 1 || ret == -FI_EAGAIN);
		count -= ret == 1;
		if (ret != 1)
			sched_yield();
	}
}

/* What landed before has to be read, lest its sender wait for room for ever. */
static void await_failures(struct sender *senders, struct node *target)
{
	for (uint32_t i = 0; i < SENDERS; i++) {
		while (!atomic_load(&senders[i].failed)) {
			struct fi_cq_data_entry entry;

			if (target)
				(void) fi_cq_read(target->cq, &entry, 1);
			sched_yield();
		}
	}
}

/* D1: once a region is closed nobody touches its memory, which is freed. */
static void test_region_goes(void)
{
	struct sender senders[SENDERS];
	struct node target;
	atomic_int stop = 0;

	sim_settings("nics=4");
	node_open(&target, 0, 0);
	senders_start(senders, &target, &stop);
	drain(&target, 500);
	CHECK(!fi_close(&target.mr->fid));
	target.mr = NULL;
	free(target.memory);
	target.memory = NULL;
	/* Growing the table is a change as well. */
	for (int i = 0; i < 200; i++) {
		static unsigned char memory[8];
		struct fid_mr *mr;

		CHECK(!fi_mr_reg(target.domain, memory, 8, FI_READ, 0, 0, 0,
				 &mr, NULL));
		CHECK(!fi_close(&mr->fid));
	}
	await_failures(senders, &target);
	atomic_store(&stop, 1);
	senders_join(senders);
	senders_close(senders);
	node_close(&target);
}

/* P1: once an endpoint is closed nobody touches it, its CQ or its keys. */
static void test_endpoint_goes(void)
{
	struct sender senders[SENDERS];
	struct node target;
	atomic_int stop = 0;

	sim_settings("nics=4");
	node_open(&target, 0, 0);
	senders_start(senders, &target, &stop);
	drain(&target, 500);
	CHECK(!fi_close(&target.ep->fid));
	CHECK(!fi_close(&target.mr->fid));
	CHECK(!fi_close(&target.av->fid));
	CHECK(!fi_close(&target.cq->fid));
	CHECK(!fi_close(&target.domain->fid));
	CHECK(!fi_close(&target.fabric->fid));
	free(target.memory);
	await_failures(senders, NULL);
	atomic_store(&stop, 1);
	senders_join(senders);
	senders_close(senders);
	fi_freeinfo(target.info);
}

/* Scripts change under those whom they concern. */
static void test_scripts_meanwhile(void)
{
	struct sender senders[SENDERS];
	struct node target;

	sim_settings("nics=4,order=random");
	node_open(&target, 0, 0);
	senders_start(senders, &target, NULL);
	for (uint64_t got = 0; got < SENDERS * WRITES; got++) {
		CHECK(!sim.down(3, 3600000000000ull));
		CHECK(!sim.fail(3, "read", 0, FI_EIO, 1));
		(void) sim_counter(1, "writes_posted");
		sim.heal();
		drain(&target, 1);
	}
	senders_join(senders);
	CHECK(sim_counter(1, "completions") == WRITES);
	CHECK(sim_counter(0, "immediates") == SENDERS * WRITES);
	senders_close(senders);
	node_close(&target);
}

int main(void)
{
	sim_load();
	test_arrivals();
	test_region_goes();
	test_endpoint_goes();
	test_scripts_meanwhile();
	return 0;
}
