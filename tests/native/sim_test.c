/* The simulated NICs do what a provider must: infos, objects and their ends,
 * messages, RMA, keys. One thread. */
#include "sim_node.h"

static char context[16];

static struct fi_info *getinfo(struct fi_info *hints)
{
	struct fi_info *info = NULL;

	if (fi_getinfo(API_VERSION, NULL, NULL, 0, hints, &info))
		CHECK(!info);
	return info;
}

static void refuses(struct fi_info *hints)
{
	CHECK(!getinfo(hints));
	fi_freeinfo(hints);
}

static void test_infos(void)
{
	struct fi_info *hints = sim_hints(), *info, *copy;
	uint32_t count = 0;

	sim_settings("nics=32,pci=p5,gbps=100");
	CHECK(sim.nic_count() == 32);
	info = getinfo(hints);
	for (struct fi_info *at = info; at; at = at->next, count++) {
		char name[32];

		snprintf(name, sizeof(name), "sim%u-rdm", count);
		CHECK(!strcmp(at->domain_attr->name, name));
		CHECK(!strcmp(at->fabric_attr->prov_name, "sim"));
		CHECK(!strcmp(at->fabric_attr->name, "simulated"));
		CHECK(at->tx_attr->rma_iov_limit == 1);
		CHECK(at->domain_attr->cq_data_size == 4);
		CHECK(at->domain_attr->mr_key_size == 4);
		CHECK(!at->tx_attr->msg_order && !at->tx_attr->comp_order);
		CHECK(at->domain_attr->mr_mode ==
		      (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
		       FI_MR_PROV_KEY));
		CHECK(at->nic->link_attr->speed == 100000000000ull);
		CHECK(at->nic->link_attr->state == FI_LINK_UP);
		CHECK(at->nic->bus_attr->bus_type == FI_BUS_PCI);
		CHECK(at->nic->bus_attr->attr.pci.bus_id ==
		      79 + 17 * (count / 4) + count % 4);
	}
	CHECK(count == 32);
	copy = fi_dupinfo(info->next);
	fi_freeinfo(info);
	CHECK(!strcmp(copy->nic->device_attr->name, "sim1"));
	CHECK(copy->nic->bus_attr->attr.pci.bus_id == 80);
	/* An info is a hint for the same NIC. */
	info = getinfo(copy);
	CHECK(info && !info->next);
	CHECK(!strcmp(info->domain_attr->name, "sim1-rdm"));
	fi_freeinfo(info);
	fi_freeinfo(copy);
	fi_freeinfo(hints);
}

static void test_infos_by_source(void)
{
	struct fi_info *hints = sim_hints(), *info;

	sim_settings("nics=4,pci=00:01.0+00:02.0+0001:4f:00.1+ff:1f.7");
	CHECK(!fi_getinfo(API_VERSION, "sim2", NULL, FI_SOURCE, hints, &info));
	CHECK(!info->next && !strcmp(info->domain_attr->name, "sim2-rdm"));
	CHECK(info->nic->bus_attr->attr.pci.domain_id == 1);
	CHECK(info->nic->bus_attr->attr.pci.bus_id == 0x4f);
	CHECK(info->nic->bus_attr->attr.pci.function_id == 1);
	fi_freeinfo(info);
	CHECK(fi_getinfo(API_VERSION, "sim2", NULL, 0, hints, &info));
	CHECK(!sim.down(3, 0));
	CHECK(!fi_getinfo(API_VERSION, "sim3", NULL, FI_SOURCE, hints, &info));
	CHECK(info->nic->link_attr->state == FI_LINK_DOWN);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* What it cannot do it does not promise, and it never volunteers. */
static void test_infos_refused(void)
{
	struct fi_info *hints = sim_hints(), *info;

	sim_settings("nics=1");
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = NULL;
	info = getinfo(hints);
	for (struct fi_info *at = info; at; at = at->next)
		CHECK(!strstr(at->fabric_attr->prov_name, "sim"));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	hints = sim_hints();
	hints->caps |= FI_TAGGED;
	refuses(hints);
	hints = sim_hints();
	hints->caps |= FI_REMOTE_COMM;
	refuses(hints);
	hints = sim_hints();
	hints->domain_attr->mr_mode &= ~FI_MR_LOCAL;
	refuses(hints);
	hints = sim_hints();
	hints->domain_attr->threading = FI_THREAD_SAFE;
	refuses(hints);
	hints = sim_hints();
	hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	refuses(hints);
	hints = sim_hints();
	hints->domain_attr->cq_data_size = 8;
	refuses(hints);
	hints = sim_hints();
	hints->ep_attr->type = FI_EP_MSG;
	refuses(hints);
	hints = sim_hints();
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	refuses(hints);
	hints = sim_hints();
	hints->tx_attr->inject_size = 1;
	refuses(hints);
	hints = sim_hints();
	hints->tx_attr->size = 4097;
	refuses(hints);
	hints = sim_hints();
	hints->tx_attr->rma_iov_limit = 2;
	refuses(hints);
	sim_settings("rx_cq_data=1");
	hints = sim_hints();
	hints->mode = 0;
	refuses(hints);
}

static void test_settings_refused(void)
{
	static const char *const wrong[] = {
		"nics=0",
		"nics=many",
		"nics=-1",
		"nics=1.5",
		"gbps=0",
		"gbps=fast",
		"order=none",
		"mode=slow",
		"copy=2",
		"colour=red",
		"nics",
		"tx_size=0",
		"pci=zz",
		"nics=33,pci=p5",
		"nics=2,pci=00:00.0",
		"pci=00:00.0+",
		"max_bytes=100",
		"nics=1,pci=00:20.0",
		"gbps=nan",
		"latency_us=-0.5",
		"seed=",
		"clock=wall",
		"rx_cq_data=maybe",
	};
	struct node node;
	char error[256];

	sim_settings("nics=3");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(sim.configure(wrong[i], error, sizeof(error)) ==
		      -FI_EINVAL);
		CHECK(error[0]);
	}
	CHECK(sim.nic_count() == 3);
	node_open(&node, 2, 0);
	CHECK(sim.configure("nics=1", error, sizeof(error)) == -FI_EBUSY);
	node_close(&node);
	CHECK(sim.fail(3, "any", 0, FI_EIO, 0) == -FI_ENODEV);
	CHECK(sim.fail(0, "some", 0, FI_EIO, 0) == -FI_EINVAL);
	CHECK(sim.storm(0, 1.0, 1) == -FI_EINVAL);
}

/* W3, D2: a parent outlives its children. */
static void test_close_order(void)
{
	struct fid_ep *unbound;
	struct node node;

	sim_settings("nics=1");
	node_open(&node, 0, 0);
	CHECK(fi_close(&node.fabric->fid) == -FI_EBUSY);
	CHECK(fi_close(&node.domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&node.cq->fid) == -FI_EBUSY);
	CHECK(fi_close(&node.av->fid) == -FI_EBUSY);
	CHECK(fi_enable(node.ep) == -FI_EOPBADSTATE);
	CHECK(!fi_endpoint(node.domain, node.info, &unbound, NULL));
	CHECK(fi_enable(unbound) == -FI_ENOAV);
	CHECK(!fi_ep_bind(unbound, &node.av->fid, 0));
	CHECK(fi_enable(unbound) == -FI_ENOCQ);
	CHECK(fi_send(unbound, node.memory, 1, node.desc, 0, NULL) ==
	      -FI_EOPBADSTATE);
	CHECK(!fi_close(&unbound->fid));
	CHECK(!fi_close(&node.ep->fid));
	node.ep = NULL;
	CHECK(fi_close(&node.domain->fid) == -FI_EBUSY);
	node_close(&node);
}

static void test_messages(void)
{
	struct fi_cq_data_entry entry;
	struct node a, b;
	fi_addr_t to;

	sim_settings("nics=2,rx_size=2");
	node_open(&a, 0, 0);
	node_open(&b, 1, 0);
	to = node_insert(&a, &b);
	memcpy(a.memory, "hello, wire", 11);
	/* No receive yet: it waits. */
	CHECK(!fi_send(a.ep, a.memory, 11, a.desc, to, &context[0]));
	node_expect_nothing(&a);
	CHECK(!fi_recv(b.ep, b.memory, 64, b.desc, FI_ADDR_UNSPEC,
		       &context[1]));
	entry = node_next(&a, NULL);
	CHECK(entry.op_context == &context[0]);
	CHECK(entry.flags == (FI_MSG | FI_SEND));
	entry = node_next(&b, &a);
	CHECK(entry.op_context == &context[1] && entry.len == 11);
	CHECK(entry.flags == (FI_MSG | FI_RECV));
	CHECK(!memcmp(b.memory, "hello, wire", 11));
	CHECK(sim_counter(0, "sends_posted") == 1);
	CHECK(sim_counter(0, "not_ready") >= 1);
	CHECK(sim_counter(1, "messages") == 1);

	/* Too long for the receive: it fails there, and only there. */
	CHECK(!fi_recv(b.ep, b.memory, 4, b.desc, FI_ADDR_UNSPEC, &context[2]));
	CHECK(!fi_recv(b.ep, b.memory, 4, b.desc, FI_ADDR_UNSPEC, &context[3]));
	CHECK(fi_recv(b.ep, b.memory, 4, b.desc, FI_ADDR_UNSPEC, NULL) ==
	      -FI_EAGAIN);
	CHECK(!fi_send(a.ep, a.memory, 11, a.desc, to, NULL));
	node_next(&a, NULL);
	node_expect_error(&b, &context[2], FI_ETRUNC, 11);
	CHECK(!fi_senddata(a.ep, a.memory, 4, a.desc, 0x1122334455ull, to,
			   NULL));
	node_next(&a, NULL);
	entry = node_next(&b, NULL);
	CHECK(entry.op_context == &context[3] && entry.data == 0x22334455);
	CHECK(entry.flags & FI_REMOTE_CQ_DATA);
	CHECK(fi_recv(b.ep, b.memory, 4, NULL, FI_ADDR_UNSPEC, NULL) ==
	      -FI_EINVAL);
	CHECK(fi_inject(a.ep, a.memory, 1, to) == -FI_ENOSYS);
	node_close(&a);
	node_close(&b);
}

/* Pieces of the sender and of the receiver need not match. */
static void test_message_pieces(void)
{
	struct node a, b;
	struct iovec out[2], in[2], three[3];
	void *descs[3];
	fi_addr_t to;

	sim_settings("");
	node_open(&a, 0, 0);
	node_open(&b, 1, 0);
	to = node_insert(&a, &b);
	memcpy(a.memory, "abc....defg", 11);
	out[0] = (struct iovec) {a.memory, 3};
	out[1] = (struct iovec) {a.memory + 7, 4};
	in[0] = (struct iovec) {b.memory, 5};
	in[1] = (struct iovec) {b.memory + 100, 5};
	descs[0] = descs[1] = descs[2] = b.desc;
	CHECK(!fi_recvv(b.ep, in, descs, 2, FI_ADDR_UNSPEC, NULL));
	descs[0] = descs[1] = descs[2] = a.desc;
	CHECK(!fi_sendv(a.ep, out, descs, 2, to, NULL));
	memset(three, 0, sizeof(three));
	CHECK(fi_sendv(a.ep, three, descs, 3, to, NULL) == -FI_EINVAL);
	node_next(&a, NULL);
	CHECK(node_next(&b, &a).len == 7);
	CHECK(!memcmp(b.memory, "abcde", 5));
	CHECK(!memcmp(b.memory + 100, "fg", 2));
	node_close(&a);
	node_close(&b);
}

static void test_rma(void)
{
	struct fi_cq_data_entry entry;
	struct node a, b;
	fi_addr_t to;

	sim_settings("");
	node_open(&a, 0, 0);
	node_open(&b, 1, 0);
	to = node_insert(&a, &b);
	memset(a.memory, 7, MEMORY);
	CHECK(!node_write(&a, to, &b, 100, 1000, 0xfedcba9876543210ull,
			  &context[0]));
	entry = node_next(&a, NULL);
	CHECK(entry.op_context == &context[0]);
	CHECK(entry.flags == (FI_RMA | FI_WRITE));
	entry = node_next(&b, &a);
	CHECK(entry.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
	CHECK(entry.data == 0x76543210 && entry.len == 1000);
	CHECK(!entry.op_context);
	CHECK(b.memory[99] == 0 && b.memory[100] == 7);
	CHECK(b.memory[1099] == 7 && b.memory[1100] == 0);

	memset(b.memory, 9, MEMORY);
	CHECK(!node_read(&a, to, &b, 5, 10, &context[1]));
	entry = node_next(&a, &b);
	CHECK(entry.op_context == &context[1]);
	CHECK(entry.flags == (FI_RMA | FI_READ));
	CHECK(a.memory[4] == 7 && a.memory[5] == 9 && a.memory[14] == 9 &&
	      a.memory[15] == 7);
	/* To itself. */
	to = node_insert(&a, &a);
	CHECK(!fi_write(a.ep, a.memory, 5, a.desc, to,
			(uintptr_t) a.memory + 500, a.key, &context[2]));
	CHECK(node_next(&a, NULL).op_context == &context[2]);
	CHECK(!memcmp(a.memory, a.memory + 500, 5));
	CHECK(sim_counter(0, "bytes") == 1015);
	CHECK(sim_counter(1, "immediates") == 1);
	node_close(&a);
	node_close(&b);
	CHECK(sim_counter(0, "completions") == 3);
}

/* Immediate data that take a receive, and wait for one. */
static void test_consuming_immediates(void)
{
	struct fi_cq_data_entry entry;
	struct node a, b;
	fi_addr_t to;

	sim_settings("rx_cq_data=1");
	node_open(&a, 0, 0);
	node_open(&b, 1, 0);
	CHECK(b.info->mode == FI_RX_CQ_DATA);
	to = node_insert(&a, &b);
	CHECK(!node_write(&a, to, &b, 0, 8, 5, NULL));
	node_expect_nothing(&a);
	node_expect_nothing(&b);
	CHECK(!fi_recv(b.ep, b.memory, 64, b.desc, FI_ADDR_UNSPEC,
		       &context[3]));
	node_next(&a, NULL);
	entry = node_next(&b, &a);
	CHECK(entry.op_context == &context[3] && entry.data == 5);
	node_close(&a);
	node_close(&b);
}

static void test_keys(void)
{
	struct node a, b, other;
	uint64_t right;
	fi_addr_t to;

	sim_settings("nics=3");
	node_open(&a, 0, 0);
	node_open(&b, 1, 0);
	node_open(&other, 2, 0);
	to = node_insert(&a, &b);
	right = b.key;
	CHECK(right && right <= UINT32_MAX);
	/* No such key; one of another generation; none at all. */
	for (int i = 0; i < 3; i++) {
		b.key = i == 0 ? right + 1 : i == 1 ? right ^ (1u << 31) : 0;
		CHECK(!node_write(&a, to, &b, 0, 8, 1, &context[0]));
		node_expect_error(&a, &context[0], FI_EINVAL, 7);
	}
	b.key = right | 1ull << 32;
	CHECK(!node_write(&a, to, &b, 0, 8, 1, &context[0]));
	node_expect_error(&a, &context[0], FI_EINVAL, 7);
	b.key = right;
	/* Over the end, over the beginning, around it all. */
	CHECK(!fi_write(a.ep, a.memory, 16, a.desc, to,
			(uintptr_t) b.memory + MEMORY - 15, right,
			&context[1]));
	node_expect_error(&a, &context[1], FI_EINVAL, 7);
	CHECK(!fi_write(a.ep, a.memory, 16, a.desc, to,
			(uintptr_t) b.memory - 1, right, &context[1]));
	node_expect_error(&a, &context[1], FI_EINVAL, 7);
	CHECK(!fi_write(a.ep, a.memory, 16, a.desc, to, UINT64_MAX - 7, right,
			&context[1]));
	node_expect_error(&a, &context[1], FI_EINVAL, 7);
	CHECK(!fi_write(a.ep, a.memory, 16, a.desc, to,
			(uintptr_t) b.memory + MEMORY - 16, right, NULL));
	node_next(&a, &b);
	/* Nothing to move needs no key. */
	CHECK(!fi_write(a.ep, NULL, 0, NULL, to, 0, 0, NULL));
	node_next(&a, &b);
	/* Rights. */
	CHECK(!fi_close(&b.mr->fid));
	CHECK(!node_write(&a, to, &b, 0, 8, 1, &context[2]));
	node_expect_error(&a, &context[2], FI_EINVAL, 7);
	node_register(&b, FI_REMOTE_READ);
	CHECK(b.key != right);
	CHECK(!node_write(&a, to, &b, 0, 8, 1, &context[2]));
	node_expect_error(&a, &context[2], FI_EINVAL, 7);
	CHECK(!node_read(&a, to, &b, 0, 8, NULL));
	node_next(&a, &b);
	/* Local memory: another domain's key means nothing here, and without
	 * any nothing is posted. */
	CHECK(!fi_close(&a.mr->fid));
	a.mr = NULL;
	CHECK(!node_read(&a, to, &b, 0, 8, &context[3]));
	node_expect_error(&a, &context[3], FI_EINVAL, 5);
	a.desc = NULL;
	CHECK(node_read(&a, to, &b, 0, 8, NULL) == -FI_EINVAL);
	node_expect_nothing(&b);
	node_close(&a);
	node_close(&b);
	node_close(&other);
}

static void test_many_regions(void)
{
	struct fid_mr *mrs[300];
	struct node node;

	sim_settings("");
	node_open(&node, 0, 0);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < 300; i++) {
			CHECK(!fi_mr_reg(node.domain, node.memory + i, 8,
					 FI_READ, 0, 0, 0, &mrs[i], NULL));
			for (size_t j = 0; j < i; j++)
				CHECK(fi_mr_key(mrs[j]) != fi_mr_key(mrs[i]));
		}
		for (size_t i = 0; i < 300; i++)
			CHECK(!fi_close(&mrs[i]->fid));
	}
	CHECK(fi_mr_reg(node.domain, node.memory, 0, FI_READ, 0, 0, 0, &mrs[0],
			NULL) == -FI_EINVAL);
	CHECK(fi_mr_reg(node.domain, node.memory, 8, FI_READ, 0, 0, FI_MORE,
			&mrs[0], NULL) == -FI_EBADFLAGS);
	node_close(&node);
}

static void test_addresses(void)
{
	unsigned char bytes[64];
	size_t length = 4;
	struct node a, b;
	fi_addr_t to, gone;

	sim_settings("");
	node_open(&a, 0, 0);
	node_open(&b, 1, 0);
	CHECK(fi_getname(&a.ep->fid, bytes, &length) == -FI_ETOOSMALL);
	CHECK(length == 32 && !memcmp(bytes, a.address, 4));
	CHECK(!memcmp(a.address, b.address, 8));
	memset(bytes, 0, sizeof(bytes));
	CHECK(fi_av_insert(a.av, bytes, 1, &to, 0, NULL) == 0);
	CHECK(to == FI_ADDR_NOTAVAIL);
	CHECK(fi_send(a.ep, a.memory, 1, a.desc, 5, NULL) == -FI_EINVAL);
	/* Of no endpoint that is or ever was. */
	memcpy(bytes, b.address, b.address_bytes);
	bytes[12] ^= 1;
	CHECK(fi_av_insert(a.av, bytes, 1, &gone, 0, NULL) == 1);
	CHECK(!node_write(&a, gone, &b, 0, 8, 1, &context[0]));
	node_expect_error(&a, &context[0], FI_ENOTCONN, 9);
	to = node_insert(&a, &b);
	length = sizeof(bytes);
	CHECK(!fi_av_lookup(a.av, to, bytes, &length));
	CHECK(length == 32 && !memcmp(bytes, b.address, 32));
	/* Out, and then removed: nothing moves any more. */
	memset(a.memory, 3, 8);
	CHECK(!node_write(&a, to, &b, 0, 8, 1, &context[1]));
	CHECK(!fi_av_remove(a.av, &to, 1, 0));
	node_expect_error(&a, &context[1], FI_ECANCELED, 1);
	CHECK(b.memory[0] == 0);
	CHECK(fi_av_remove(a.av, &to, 1, 0) == -FI_EINVAL);
	/* Out, and the endpoint there closes. */
	to = node_insert(&a, &b);
	CHECK(!node_write(&a, to, &b, 0, 8, 1, &context[2]));
	CHECK(!fi_close(&b.ep->fid));
	b.ep = NULL;
	node_expect_error(&a, &context[2], FI_ENOTCONN, 9);
	/* Out, and one's own endpoint closes. */
	CHECK(!node_write(&a, to, &b, 0, 8, 1, &context[3]));
	node_close(&a);
	node_close(&b);
}

static void test_formats_and_selection(void)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT};
	struct fi_cq_msg_entry msg;
	struct fi_cq_entry plain;
	struct fid_cq *tx, *rx;
	struct fid_ep *ep;
	struct node a;
	fi_addr_t to;
	int fd;

	sim_settings("nics=1");
	node_open(&a, 0, 0);
	CHECK(!fi_cq_open(a.domain, &attr, &tx, NULL));
	CHECK(fi_control(&tx->fid, FI_GETWAIT, &fd));
	attr.format = FI_CQ_FORMAT_MSG;
	CHECK(!fi_cq_open(a.domain, &attr, &rx, NULL));
	attr.format = FI_CQ_FORMAT_TAGGED;
	CHECK(fi_cq_open(a.domain, &attr, &rx, NULL) == -FI_ENOSYS);
	CHECK(!fi_endpoint(a.domain, a.info, &ep, NULL));
	CHECK(!fi_ep_bind(ep, &a.av->fid, 0));
	CHECK(!fi_ep_bind(ep, &tx->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
	CHECK(!fi_ep_bind(ep, &rx->fid, FI_RECV));
	CHECK(fi_ep_bind(ep, &rx->fid, FI_RECV) == -FI_EINVAL);
	CHECK(!fi_enable(ep));
	CHECK(!fi_recv(ep, a.memory, 8, a.desc, FI_ADDR_UNSPEC, &context[5]));
	to = node_insert(&a, &a);
	/* Without FI_COMPLETION it is done in silence. */
	CHECK(!fi_write(ep, a.memory, 8, a.desc, to, (uintptr_t) a.memory + 8,
			a.key, &context[0]));
	CHECK(fi_cq_read(tx, &plain, 1) == -FI_EAGAIN);
	CHECK(sim_counter(0, "completions") == 1);
	CHECK(!node_write(&a, to, &a, 0, 8, 1, &context[1]));
	node_next(&a, NULL);
	node_next(&a, NULL);
	{
		struct iovec iov = {a.memory, 8};
		struct fi_msg send = {&iov, &a.desc, 1, to, &context[2], 0};

		CHECK(!fi_recv(a.ep, a.memory + 64, 8, a.desc, FI_ADDR_UNSPEC,
			       NULL));
		CHECK(!fi_sendmsg(ep, &send, FI_COMPLETION));
		CHECK(fi_sendmsg(ep, &send, FI_PEEK) == -FI_EBADFLAGS);
	}
	CHECK(fi_cq_read(tx, &plain, 1) == 1);
	CHECK(plain.op_context == &context[2]);
	CHECK(fi_cq_read(rx, &msg, 1) == -FI_EAGAIN);
	CHECK(!fi_close(&ep->fid));
	CHECK(!fi_close(&tx->fid));
	CHECK(!fi_close(&rx->fid));
	node_close(&a);
}

int main(void)
{
	sim_load();
	test_infos();
	test_infos_by_source();
	test_infos_refused();
	test_settings_refused();
	test_close_order();
	test_messages();
	test_message_pieces();
	test_rma();
	test_consuming_immediates();
	test_keys();
	test_many_regions();
	test_addresses();
	test_formats_and_selection();
	return 0;
}
