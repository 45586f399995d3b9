#include "info.h"

#include "ep.h"

#include <rdma/fi_errno.h>
#include <strings.h>

#define PRIMARY_CAPS (FI_MSG | FI_RMA)
#define TX_CAPS      (PRIMARY_CAPS | FI_SEND | FI_READ | FI_WRITE)
#define RX_CAPS      (PRIMARY_CAPS | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE)
/* Not FI_REMOTE_COMM: they reach this process only. */
#define DOMAIN_CAPS FI_LOCAL_COMM
#define CAPS        (TX_CAPS | RX_CAPS | DOMAIN_CAPS)

#define MR_MODE \
	(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#define OP_FLAGS                                                     \
	(FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | \
	 FI_DELIVERY_COMPLETE)
#define IMMEDIATE_BYTES 4u
#define KEY_BYTES       4u
#define ERROR_BYTES     0u

/* Completions stay in the order in which they landed, which is none. */
static int tx_fits(const struct sim_config *config,
		   const struct fi_tx_attr *hints)
{
	return !hints ||
	       (!(hints->caps & ~TX_CAPS) && !(hints->op_flags & ~OP_FLAGS) &&
		!hints->msg_order && !hints->comp_order &&
		!hints->inject_size && hints->size <= config->tx_size &&
		hints->iov_limit <= SIM_IOV_LIMIT && hints->rma_iov_limit <= 1);
}

static int rx_fits(const struct sim_config *config,
		   const struct fi_rx_attr *hints)
{
	return !hints ||
	       (!(hints->caps & ~RX_CAPS) &&
		!(hints->op_flags & ~FI_COMPLETION) && !hints->msg_order &&
		!hints->comp_order && hints->size <= config->rx_size &&
		hints->iov_limit <= SIM_IOV_LIMIT);
}

static int ep_fits(const struct sim_config *config,
		   const struct fi_ep_attr *hints)
{
	return !hints ||
	       ((hints->type == FI_EP_UNSPEC || hints->type == FI_EP_RDM) &&
		hints->protocol == FI_PROTO_UNSPEC &&
		hints->max_msg_size <= config->message_bytes &&
		!hints->msg_prefix_size && !hints->max_order_raw_size &&
		!hints->max_order_war_size && !hints->max_order_waw_size &&
		hints->tx_ctx_cnt <= 1 && hints->rx_ctx_cnt <= 1);
}

static int domain_fits(const struct fi_domain_attr *hints)
{
	return !hints || ((hints->threading == FI_THREAD_UNSPEC ||
			   hints->threading == FI_THREAD_DOMAIN) &&
			  hints->control_progress != FI_PROGRESS_AUTO &&
			  hints->data_progress != FI_PROGRESS_AUTO &&
			  (hints->mr_mode & MR_MODE) == MR_MODE &&
			  hints->mr_key_size <= KEY_BYTES &&
			  hints->cq_data_size <= IMMEDIATE_BYTES &&
			  !(hints->caps & ~DOMAIN_CAPS));
}

/* The provider answers those alone who ask for it by its name: it must never be
 * what somebody gets who did not name any. */
static int hints_fit(const struct sim_config *config,
		     const struct fi_info *hints)
{
	uint64_t mode = config->consume ? FI_RX_CQ_DATA : 0;

	return hints && hints->fabric_attr && hints->fabric_attr->prov_name &&
	       !strcasecmp(hints->fabric_attr->prov_name, SIM_PROVIDER) &&
	       (!hints->fabric_attr->name ||
		!strcasecmp(hints->fabric_attr->name, SIM_FABRIC)) &&
	       !(hints->caps & ~CAPS) && !(mode & ~hints->mode) &&
	       (hints->addr_format == FI_FORMAT_UNSPEC ||
		hints->addr_format == SIM_ADDRESS_FORMAT) &&
	       !hints->dest_addr && tx_fits(config, hints->tx_attr) &&
	       rx_fits(config, hints->rx_attr) &&
	       ep_fits(config, hints->ep_attr) &&
	       domain_fits(hints->domain_attr);
}

/* Whether it is among those that were asked for. */
static int nic_fits(const struct sim_nic *nic, const struct fi_info *hints,
		    const char *source)
{
	const struct fi_domain_attr *attr = hints->domain_attr;
	struct sim_address address;

	if (source && strcasecmp(source, nic->name) &&
	    strcasecmp(source, nic->domain))
		return 0;
	if (attr && attr->name && strcasecmp(attr->name, nic->domain))
		return 0;
	if (!hints->src_addr)
		return 1;
	if (hints->src_addrlen != sizeof(address))
		return 0;
	memcpy(&address, hints->src_addr, sizeof(address));
	return address.nic == nic->index;
}

/* Primary capabilities bring their directions with them, unless some are named.
 */
static uint64_t info_caps(uint64_t asked)
{
	if (!asked)
		return CAPS;
	if ((asked & FI_MSG) && !(asked & (FI_SEND | FI_RECV)))
		asked |= FI_SEND | FI_RECV;
	if ((asked & FI_RMA) &&
	    !(asked & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)))
		asked |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	return asked | DOMAIN_CAPS;
}

static void info_describe_queues(struct fi_info *info,
				 const struct sim_config *config,
				 const struct fi_info *hints)
{
	uint64_t mode = config->consume ? FI_RX_CQ_DATA : 0;

	info->caps = info_caps(hints->caps);
	info->mode = mode;
	info->tx_attr->caps = info->caps & TX_CAPS;
	info->tx_attr->op_flags = hints->tx_attr ? hints->tx_attr->op_flags : 0;
	info->tx_attr->size = config->tx_size;
	info->tx_attr->iov_limit = SIM_IOV_LIMIT;
	info->tx_attr->rma_iov_limit = 1;
	info->rx_attr->caps = info->caps & RX_CAPS;
	info->rx_attr->mode = mode;
	info->rx_attr->size = config->rx_size;
	info->rx_attr->iov_limit = SIM_IOV_LIMIT;
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->max_msg_size = config->message_bytes;
	info->ep_attr->tx_ctx_cnt = 1;
	info->ep_attr->rx_ctx_cnt = 1;
}

static void info_describe_domain(struct fi_domain_attr *attr,
				 const struct fi_domain_attr *hints)
{
	attr->threading = FI_THREAD_DOMAIN;
	attr->control_progress = FI_PROGRESS_MANUAL;
	attr->data_progress = FI_PROGRESS_MANUAL;
	attr->resource_mgmt = FI_RM_ENABLED;
	attr->av_type = hints && hints->av_type != FI_AV_UNSPEC ?
				hints->av_type :
				FI_AV_TABLE;
	attr->mr_mode = MR_MODE;
	attr->mr_key_size = KEY_BYTES;
	attr->cq_data_size = IMMEDIATE_BYTES;
	attr->cq_cnt = 512;
	attr->ep_cnt = 256;
	attr->tx_ctx_cnt = 256;
	attr->rx_ctx_cnt = 256;
	attr->max_ep_tx_ctx = 1;
	attr->max_ep_rx_ctx = 1;
	attr->mr_iov_limit = 1;
	attr->caps = DOMAIN_CAPS;
	attr->max_err_data = ERROR_BYTES;
	attr->mr_cnt = SIM_KEY_LIMIT;
}

static struct fi_info *info_open(const struct sim_wire *wire,
				 struct sim_nic *nic,
				 const struct fi_info *hints)
{
	struct fi_info *info = sim_libfabric()->dupinfo(NULL);
	struct sim_address *source = calloc(1, sizeof(*source));

	if (!info || !source)
		goto failed;
	info->addr_format = SIM_ADDRESS_FORMAT;
	info->src_addr = source;
	info->src_addrlen = sizeof(*source);
	memcpy(source->magic, SIM_ADDRESS_MAGIC, sizeof(source->magic));
	source->process = wire->process;
	source->nic = nic->index;
	source = NULL;
	info_describe_queues(info, &wire->config, hints);
	info_describe_domain(info->domain_attr, hints->domain_attr);
	info->domain_attr->name = strdup(nic->domain);
	/* Not prov_name: libfabric fills that in. */
	info->fabric_attr->name = strdup(SIM_FABRIC);
	info->nic = sim_hardware_open(nic);
	if (info->domain_attr->name && info->fabric_attr->name && info->nic)
		return info;
failed:
	free(source);
	if (info)
		sim_libfabric()->freeinfo(info);
	return NULL;
}

/* With the wire's mutex held. */
static int info_list(struct sim_wire *wire, const struct fi_info *hints,
		     const char *source, struct fi_info **list)
{
	struct fi_info **end = list;

	*list = NULL;
	if (!hints_fit(&wire->config, hints))
		return -FI_ENODATA;
	for (uint32_t i = 0; i < wire->config.nic_count; i++) {
		if (!nic_fits(&wire->nics[i], hints, source))
			continue;
		*end = info_open(wire, &wire->nics[i], hints);
		if (!*end) {
			if (*list)
				sim_libfabric()->freeinfo(*list);
			*list = NULL;
			return -FI_ENOMEM;
		}
		end = &(*end)->next;
	}
	return *list ? 0 : -FI_ENODATA;
}

int sim_getinfo(uint32_t version, const char *node, const char *service,
		uint64_t flags, const struct fi_info *hints,
		struct fi_info **list)
{
	struct sim_wire *wire;
	int ret;

	(void) version;
	(void) service;
	/* Peers have no names: their addresses come from fi_getname. */
	if (node && !(flags & FI_SOURCE))
		return -FI_ENODATA;
	wire = sim_wire_enter(&ret);
	if (!ret)
		ret = info_list(wire, hints, node, list);
	sim_wire_leave(wire);
	return ret;
}
