#include "sim_node.h"

#include <dlfcn.h>

struct sim_control sim;

static void *find(void *plugin, const char *name)
{
	void *symbol = dlsym(plugin, name);

	CHECK(symbol);
	return symbol;
}

void sim_load(void)
{
	const char *folder = getenv("FI_PROVIDER_PATH");
	char path[4096];
	void *plugin;

	CHECK(folder);
	snprintf(path, sizeof(path), "%s/libfabsim-fi.so", folder);
	plugin = dlopen(path, RTLD_NOW);
	CHECK(plugin);
	*(void **) &sim.configure = find(plugin, "fabsim_configure");
	*(void **) &sim.nic_count = find(plugin, "fabsim_nic_count");
	*(void **) &sim.fail = find(plugin, "fabsim_fail");
	*(void **) &sim.again = find(plugin, "fabsim_again");
	*(void **) &sim.storm = find(plugin, "fabsim_storm");
	*(void **) &sim.down = find(plugin, "fabsim_down");
	*(void **) &sim.up = find(plugin, "fabsim_up");
	*(void **) &sim.silence = find(plugin, "fabsim_silence");
	*(void **) &sim.silence_endpoint =
		find(plugin, "fabsim_silence_endpoint");
	*(void **) &sim.overrun = find(plugin, "fabsim_overrun");
	*(void **) &sim.heal = find(plugin, "fabsim_heal");
	*(void **) &sim.advance = find(plugin, "fabsim_advance");
	*(void **) &sim.counter_name = find(plugin, "fabsim_counter_name");
	*(void **) &sim.counter = find(plugin, "fabsim_counter");
}

void sim_settings(const char *text)
{
	char error[256];
	int ret = sim.configure(text, error, sizeof(error));

	if (ret)
		fprintf(stderr, "%s: %d %s\n", text, ret, error);
	CHECK(!ret);
}

uint64_t sim_counter(uint32_t nic, const char *name)
{
	uint64_t value = 0;
	uint32_t i = 0;

	while (strcmp(sim.counter_name(i), name))
		i++;
	CHECK(!sim.counter(nic, i, &value));
	return value;
}

struct fi_info *sim_hints(void)
{
	struct fi_info *hints = fi_allocinfo();

	CHECK(hints);
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_RX_CQ_DATA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY |
				      FI_MR_ENDPOINT;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->fabric_attr->prov_name = strdup("sim");
	return hints;
}

struct fi_info *sim_info(uint32_t number)
{
	struct fi_info *hints = sim_hints();
	struct fi_info *info;
	char name[32];

	snprintf(name, sizeof(name), "sim%u-rdm", number);
	hints->domain_attr->name = strdup(name);
	CHECK(!fi_getinfo(API_VERSION, NULL, NULL, 0, hints, &info));
	CHECK(info && !info->next);
	fi_freeinfo(hints);
	return info;
}

void node_register(struct node *node, uint64_t access)
{
	CHECK(!fi_mr_reg(node->domain, node->memory, MEMORY,
			 FI_SEND | FI_RECV | FI_READ | FI_WRITE | access, 0, 0,
			 0, &node->mr, NULL));
	node->desc = fi_mr_desc(node->mr);
	node->key = fi_mr_key(node->mr);
}

void node_open(struct node *node, uint32_t nic, size_t cq_size)
{
	struct fi_cq_attr cq_attr = {
		.size = cq_size ? cq_size : 1024,
		.format = FI_CQ_FORMAT_DATA,
		.wait_obj = FI_WAIT_FD,
	};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};

	memset(node, 0, sizeof(*node));
	node->memory = calloc(1, MEMORY);
	CHECK(node->memory);
	node->info = sim_info(nic);
	CHECK(!fi_fabric(node->info->fabric_attr, &node->fabric, NULL));
	CHECK(!fi_domain(node->fabric, node->info, &node->domain, NULL));
	CHECK(!fi_cq_open(node->domain, &cq_attr, &node->cq, NULL));
	CHECK(!fi_av_open(node->domain, &av_attr, &node->av, NULL));
	CHECK(!fi_endpoint(node->domain, node->info, &node->ep, NULL));
	CHECK(!fi_ep_bind(node->ep, &node->av->fid, 0));
	CHECK(!fi_ep_bind(node->ep, &node->cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(!fi_enable(node->ep));
	node->address_bytes = sizeof(node->address);
	CHECK(!fi_getname(&node->ep->fid, node->address, &node->address_bytes));
	node_register(node, FI_REMOTE_READ | FI_REMOTE_WRITE);
}

void node_close(struct node *node)
{
	if (node->ep)
		CHECK(!fi_close(&node->ep->fid));
	if (node->mr)
		CHECK(!fi_close(&node->mr->fid));
	CHECK(!fi_close(&node->av->fid));
	CHECK(!fi_close(&node->cq->fid));
	CHECK(!fi_close(&node->domain->fid));
	CHECK(!fi_close(&node->fabric->fid));
	fi_freeinfo(node->info);
	free(node->memory);
}

fi_addr_t node_insert(struct node *node, const struct node *other)
{
	fi_addr_t address = FI_ADDR_UNSPEC;

	CHECK(fi_av_insert(node->av, other->address, 1, &address, 0, NULL) ==
	      1);
	return address;
}

ssize_t node_write(struct node *node, fi_addr_t to, const struct node *target,
		   size_t offset, size_t bytes, uint64_t data, void *context)
{
	struct iovec iov = {node->memory + offset, bytes};
	struct fi_rma_iov remote = {(uintptr_t) target->memory + offset, bytes,
				    target->key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &node->desc,
		.iov_count = 1,
		.addr = to,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = context,
		.data = data,
	};

	return fi_writemsg(node->ep, &msg, FI_COMPLETION | FI_REMOTE_CQ_DATA);
}

ssize_t node_read(struct node *node, fi_addr_t from, const struct node *target,
		  size_t offset, size_t bytes, void *context)
{
	return fi_read(node->ep, node->memory + offset, bytes, node->desc, from,
		       (uintptr_t) target->memory + offset, target->key,
		       context);
}

struct fi_cq_data_entry node_next(struct node *node, struct node *other)
{
	struct fi_cq_data_entry entry, stray;
	ssize_t ret;

	while ((ret = fi_cq_read(node->cq, &entry, 1)) == -FI_EAGAIN) {
		if (other)
			CHECK(fi_cq_read(other->cq, &stray, 1) == -FI_EAGAIN);
	}
	CHECK(ret == 1);
	return entry;
}

void node_expect_error(struct node *node, void *context, int err,
		       int prov_errno)
{
	struct fi_cq_err_entry error = {0};
	struct fi_cq_data_entry entry;
	char text[128] = "";
	ssize_t ret;

	while ((ret = fi_cq_read(node->cq, &entry, 1)) == -FI_EAGAIN)
		;
	CHECK(ret == -FI_EAVAIL);
	CHECK(fi_cq_read(node->cq, &entry, 1) == -FI_EAVAIL);
	CHECK(fi_cq_readerr(node->cq, &error, 0) == 1);
	CHECK(error.op_context == context);
	if (error.err != err || error.prov_errno != prov_errno)
		fprintf(stderr, "error %d, %d\n", error.err, error.prov_errno);
	CHECK(error.err == err && error.prov_errno == prov_errno);
	fi_cq_strerror(node->cq, prov_errno, NULL, text, sizeof(text));
	CHECK(!strncmp(text, "simulated: ", 11));
	CHECK(fi_cq_readerr(node->cq, &error, 0) == -FI_EAGAIN);
}

void node_expect_nothing(struct node *node)
{
	struct fi_cq_data_entry entry;

	for (int i = 0; i < 3; i++)
		CHECK(fi_cq_read(node->cq, &entry, 1) == -FI_EAGAIN);
}
