/* What is scripted happens, exactly so and again in the next run: order,
 * failures, refusals, links that go down, silence, overruns, and the pace of
 * links on the virtual clock. One thread. */
#include "sim_node.h"

#include <poll.h>

static char context[256];

static void pair_open(struct node *a, struct node *b, fi_addr_t *to)
{
	node_open(a, 0, 0);
	node_open(b, 1, 0);
	*to = node_insert(a, b);
}

static void pair_close(struct node *a, struct node *b)
{
	node_close(a);
	node_close(b);
}

/* The order in which 200 writes complete; all bytes arrive. */
static void order_of(const char *settings, unsigned char *order)
{
	struct node a, b;
	fi_addr_t to;

	sim_settings(settings);
	pair_open(&a, &b, &to);
	for (size_t i = 0; i < 200; i++) {
		memset(a.memory + i * 100, (int) i + 1, 100);
		CHECK(!node_write(&a, to, &b, i * 100, 100, i, &context[i]));
	}
	for (size_t i = 0; i < 200; i++) {
		struct fi_cq_data_entry entry = node_next(&a, NULL);

		order[i] =
			(unsigned char) ((char *) entry.op_context - context);
		/* The immediate data come in the order of landing. */
		CHECK(node_next(&b, NULL).data == order[i]);
	}
	node_expect_nothing(&a);
	CHECK(!memcmp(a.memory, b.memory, MEMORY));
	pair_close(&a, &b);
}

static void test_order(void)
{
	unsigned char posted[200], random[200], again[200], other[200];
	int seen[200] = {0};

	order_of("order=posted", posted);
	for (size_t i = 0; i < 200; i++)
		CHECK(posted[i] == i);
	order_of("order=random,seed=7", random);
	order_of("order=random,seed=7", again);
	order_of("order=random,seed=8", other);
	CHECK(memcmp(posted, random, 200));
	CHECK(!memcmp(random, again, 200));
	CHECK(memcmp(random, other, 200));
	for (size_t i = 0; i < 200; i++)
		CHECK(!seen[random[i]]++);
}

/* Q1: what is out takes a place until its completion is read. */
static void test_queue_limit(void)
{
	struct node a, b;
	fi_addr_t to;

	sim_settings("tx_size=4");
	pair_open(&a, &b, &to);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 4; i++)
			CHECK(!node_write(&a, to, &b, 0, 8, 1, NULL));
		CHECK(node_write(&a, to, &b, 0, 8, 1, NULL) == -FI_EAGAIN);
		node_next(&a, NULL);
		CHECK(!node_write(&a, to, &b, 0, 8, 1, NULL));
		CHECK(node_write(&a, to, &b, 0, 8, 1, NULL) == -FI_EAGAIN);
		for (int i = 0; i < 4; i++)
			node_next(&a, NULL);
	}
	CHECK(sim_counter(0, "again") == 10);
	CHECK(sim_counter(0, "writes_posted") == 25);
	pair_close(&a, &b);
}

/* C2: a target that does not read loses nothing. */
static void test_full_completion_queue(void)
{
	struct node a, b;
	fi_addr_t to;

	sim_settings("");
	node_open(&a, 0, 0);
	node_open(&b, 1, 64);
	to = node_insert(&a, &b);
	for (uint64_t i = 0; i < 200; i++)
		CHECK(!node_write(&a, to, &b, 0, 8, i, NULL));
	for (uint64_t i = 0; i < 64; i++)
		node_next(&a, NULL);
	node_expect_nothing(&a);
	CHECK(sim_counter(0, "not_ready") >= 136);
	for (uint64_t i = 0; i < 200; i++) {
		struct fi_cq_data_entry entry;

		CHECK(node_next(&b, NULL).data == i);
		(void) fi_cq_read(a.cq, &entry, 1);
	}
	CHECK(sim_counter(1, "immediates") == 200);
	CHECK(sim_counter(0, "completions") == 200);
	pair_close(&a, &b);
}

static void test_failures(void)
{
	struct node a, b;
	fi_addr_t to;

	sim_settings("");
	pair_open(&a, &b, &to);
	memset(a.memory, 1, MEMORY);
	CHECK(!sim.fail(0, "rma", 2, FI_EIO, 4711));
	CHECK(!sim.fail(0, "read", 0, FI_EACCES, 12));
	/* Neither messages nor other NICs count. */
	CHECK(!fi_recv(b.ep, b.memory + 4096, 8, b.desc, FI_ADDR_UNSPEC, NULL));
	CHECK(!fi_send(a.ep, a.memory, 8, a.desc, to, NULL));
	node_next(&a, NULL);
	node_next(&b, NULL);
	for (size_t i = 0; i < 4; i++) {
		CHECK(!node_write(&a, to, &b, i, 1, i, &context[i]));
		if (i == 2)
			node_expect_error(&a, &context[2], FI_EIO, 4711);
		else
			CHECK(node_next(&a, NULL).op_context == &context[i]);
	}
	CHECK(b.memory[1] == 1 && b.memory[2] == 0 && b.memory[3] == 1);
	CHECK(!node_read(&a, to, &b, 2, 1, &context[9]));
	node_expect_error(&a, &context[9], FI_EACCES, 12);
	CHECK(!node_read(&a, to, &b, 2, 1, &context[9]));
	/* Completions before a failure are read before it. */
	CHECK(!sim.fail(0, "write", 0, FI_EIO, 1));
	CHECK(!node_write(&a, to, &b, 0, 1, 0, &context[10]));
	{
		struct fi_cq_data_entry entries[8];
		struct fi_cq_err_entry error = {0};

		CHECK(fi_cq_read(a.cq, entries, 8) == 1);
		CHECK(entries[0].op_context == &context[9]);
		CHECK(fi_cq_read(a.cq, entries, 8) == -FI_EAVAIL);
		CHECK(fi_cq_readerr(a.cq, &error, 0) == 1);
		CHECK(error.op_context == &context[10]);
	}
	CHECK(sim_counter(0, "errors") == 3);
	for (int i = 0; i < 64; i++)
		CHECK(!sim.fail(0, "any", 5, FI_EIO, 0));
	CHECK(sim.fail(0, "any", 5, FI_EIO, 0) == -FI_ENOSPC);
	sim.heal();
	for (int i = 0; i < 10; i++) {
		CHECK(!node_write(&a, to, &b, 0, 1, 0, NULL));
		node_next(&a, NULL);
	}
	pair_close(&a, &b);
}

/* Which of 500 posts are refused. */
static uint64_t storm_of(struct node *a, struct node *b, fi_addr_t to,
			 uint64_t seed)
{
	uint64_t hash = 0, refused = 0;

	CHECK(!sim.storm(0, 0.5, seed));
	for (uint64_t i = 0; i < 500; i++) {
		ssize_t ret = node_write(a, to, b, 0, 1, 0, NULL);

		CHECK(!ret || ret == -FI_EAGAIN);
		hash = hash * 31 + (ret == 0);
		if (ret)
			refused++;
		else
			node_next(a, NULL);
	}
	CHECK(refused > 150 && refused < 350);
	CHECK(!sim.storm(0, 0, seed));
	return hash;
}

static void test_refusals(void)
{
	struct node a, b;
	uint64_t first;
	fi_addr_t to;

	sim_settings("");
	pair_open(&a, &b, &to);
	CHECK(!sim.again(0, 3));
	for (int i = 0; i < 3; i++)
		CHECK(node_write(&a, to, &b, 0, 1, 0, NULL) == -FI_EAGAIN);
	CHECK(!node_write(&a, to, &b, 0, 1, 0, NULL));
	node_next(&a, NULL);
	first = storm_of(&a, &b, to, 5);
	CHECK(storm_of(&a, &b, to, 5) == first);
	CHECK(storm_of(&a, &b, to, 6) != first);
	CHECK(!node_write(&a, to, &b, 0, 1, 0, NULL));
	node_next(&a, NULL);
	pair_close(&a, &b);
}

static void test_down(void)
{
	struct node a, b;
	fi_addr_t to;

	sim_settings("clock=virtual");
	pair_open(&a, &b, &to);
	CHECK(!sim.down(0, 1000));
	CHECK(!node_write(&a, to, &b, 0, 1, 0, NULL));
	node_next(&a, NULL);
	sim.advance(999);
	CHECK(!node_write(&a, to, &b, 0, 1, 0, NULL));
	node_next(&a, NULL);
	sim.advance(1);
	CHECK(!node_write(&a, to, &b, 0, 1, 0, &context[1]));
	node_expect_error(&a, &context[1], FI_EHOSTUNREACH, 15);
	CHECK(!sim.up(0));
	CHECK(!sim.down(1, 0));
	CHECK(!node_write(&a, to, &b, 0, 1, 0, &context[2]));
	node_expect_error(&a, &context[2], FI_ECONNABORTED, 13);
	CHECK(!sim.up(1));
	CHECK(!node_write(&a, to, &b, 0, 1, 0, NULL));
	node_next(&a, NULL);
	pair_close(&a, &b);
}

static void test_silence(void)
{
	struct node a, b;
	fi_addr_t to;

	sim_settings("tx_size=4");
	pair_open(&a, &b, &to);
	CHECK(!sim.silence_endpoint(b.address, b.address_bytes, 1));
	for (int i = 0; i < 4; i++)
		CHECK(!node_write(&a, to, &b, 0, 1, 0, &context[i]));
	node_expect_nothing(&a);
	CHECK(!sim.silence_endpoint(b.address, b.address_bytes, 0));
	/* What was lost stays lost, and keeps its place. */
	node_expect_nothing(&a);
	CHECK(node_write(&a, to, &b, 0, 1, 0, NULL) == -FI_EAGAIN);
	CHECK(!fi_av_remove(a.av, &to, 1, 0));
	for (int i = 0; i < 4; i++)
		node_expect_error(&a, &context[i], FI_ECANCELED, 1);
	to = node_insert(&a, &b);
	CHECK(!sim.silence(0, 1));
	CHECK(!node_write(&a, to, &b, 0, 1, 0, &context[5]));
	node_expect_nothing(&a);
	sim.heal();
	CHECK(!node_write(&a, to, &b, 0, 1, 0, &context[6]));
	CHECK(node_next(&a, NULL).op_context == &context[6]);
	CHECK(sim.silence_endpoint(b.address, 8, 1) == -FI_EINVAL);
	pair_close(&a, &b);
	CHECK(sim.silence_endpoint(b.address, 32, 1) == -FI_ENOENT);
}

static void test_overrun(void)
{
	struct fi_cq_data_entry entry;
	struct node a, b;
	fi_addr_t to;

	sim_settings("");
	pair_open(&a, &b, &to);
	CHECK(!sim.overrun(1));
	CHECK(!node_write(&a, to, &b, 0, 1, 0, NULL));
	node_next(&a, NULL);
	CHECK(fi_cq_read(b.cq, &entry, 1) == -FI_EOVERRUN);
	sim.heal();
	CHECK(fi_cq_read(b.cq, &entry, 1) == -FI_EOVERRUN);
	pair_close(&a, &b);
}

static int is_readable(struct node *node)
{
	struct pollfd fd = {.events = POLLIN};

	CHECK(!fi_control(&node->cq->fid, FI_GETWAIT, &fd.fd));
	return poll(&fd, 1, 0);
}

/* Q2: 1 Gbps is a bit a ns. 1000 bytes take 8000 ns on the link, then 500 ns to
 * arrive, and 500 ns until the sender knows. */
static void test_pace(void)
{
	struct node a, b;
	struct fid *fid;
	fi_addr_t to;

	sim_settings("mode=paced,gbps=1,latency_us=0.5,clock=virtual");
	pair_open(&a, &b, &to);
	fid = &a.cq->fid;
	CHECK(!node_write(&a, to, &b, 0, 1000, 1, &context[1]));
	CHECK(!node_write(&a, to, &b, 0, 1000, 2, &context[2]));
	node_expect_nothing(&a);
	CHECK(!fi_trywait(a.fabric, &fid, 1) && !is_readable(&a));
	sim.advance(8499);
	CHECK(is_readable(&a));
	node_expect_nothing(&a);
	node_expect_nothing(&b);
	sim.advance(1);
	CHECK(fi_trywait(a.fabric, &fid, 1) == -FI_EAGAIN);
	node_expect_nothing(&a);
	CHECK(node_next(&b, NULL).data == 1);
	node_expect_nothing(&b);
	sim.advance(499);
	node_expect_nothing(&a);
	sim.advance(1);
	CHECK(node_next(&a, NULL).op_context == &context[1]);
	node_expect_nothing(&a);
	sim.advance(7500);
	node_expect_nothing(&a);
	CHECK(node_next(&b, NULL).data == 2);
	sim.advance(500);
	CHECK(node_next(&a, NULL).op_context == &context[2]);
	/* A read: there, through the target's link, and back. */
	CHECK(!node_read(&a, to, &b, 0, 1000, &context[3]));
	sim.advance(8999);
	node_expect_nothing(&a);
	sim.advance(1);
	CHECK(node_next(&a, NULL).op_context == &context[3]);
	pair_close(&a, &b);
}

/* Two senders share the link of the NIC that both write to. */
static void test_incast(void)
{
	struct node a, b, c;
	fi_addr_t from_a, from_c;

	sim_settings("nics=3,mode=paced,gbps=1,latency_us=0,clock=virtual");
	node_open(&a, 0, 0);
	node_open(&b, 1, 0);
	node_open(&c, 2, 0);
	from_a = node_insert(&a, &b);
	from_c = node_insert(&c, &b);
	CHECK(!node_write(&a, from_a, &b, 0, 1000, 1, NULL));
	CHECK(!node_write(&c, from_c, &b, 0, 1000, 2, NULL));
	sim.advance(8000);
	node_next(&a, NULL);
	node_expect_nothing(&c);
	sim.advance(7999);
	node_expect_nothing(&c);
	sim.advance(1);
	node_next(&c, NULL);
	node_close(&a);
	node_close(&b);
	node_close(&c);
}

/* On the clock that runs by itself, the wait fd says when to look. */
static void test_timer(void)
{
	struct fi_cq_data_entry entry;
	struct pollfd fd = {.events = POLLIN};
	struct node a, b;
	struct fid *fid;
	fi_addr_t to;

	sim_settings("mode=paced,latency_us=2000");
	pair_open(&a, &b, &to);
	fid = &a.cq->fid;
	CHECK(!fi_control(fid, FI_GETWAIT, &fd.fd));
	CHECK(!node_write(&a, to, &b, 0, 1, 0, NULL));
	while (fi_cq_read(a.cq, &entry, 1) == -FI_EAGAIN) {
		if (!fi_trywait(a.fabric, &fid, 1))
			CHECK(poll(&fd, 1, -1) == 1);
	}
	pair_close(&a, &b);
}

/* With copy=0 only messages move. */
static void test_no_copy(void)
{
	struct node a, b;
	fi_addr_t to;

	sim_settings("copy=0");
	pair_open(&a, &b, &to);
	memset(a.memory, 1, 16);
	CHECK(!node_write(&a, to, &b, 0, 8, 3, NULL));
	node_next(&a, NULL);
	CHECK(node_next(&b, NULL).data == 3 && b.memory[0] == 0);
	CHECK(!fi_recv(b.ep, b.memory, 8, b.desc, FI_ADDR_UNSPEC, NULL));
	CHECK(!fi_send(a.ep, a.memory, 8, a.desc, to, NULL));
	node_next(&a, NULL);
	node_next(&b, NULL);
	CHECK(b.memory[0] == 1);
	pair_close(&a, &b);
}

int main(void)
{
	sim_load();
	test_order();
	test_queue_limit();
	test_full_completion_queue();
	test_failures();
	test_refusals();
	test_down();
	test_silence();
	test_overrun();
	test_pace();
	test_incast();
	test_timer();
	test_no_copy();
	return 0;
}
