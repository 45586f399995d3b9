#include "provider.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the engine can handle. Other mr_mode bits keep a provider away. */
#define MR_MODE                                                             \
	(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | \
	 FI_MR_ENDPOINT)
#define CAPS                                                        \
	(FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | \
	 FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Peers, counts and transfers are named by 32 bits of immediate data. */
#define IMMEDIATE_BYTES 4u

#ifdef FAB_HAVE_DOMAIN_PROGRESS
#define DATA_PROGRESS progress
#else
#define DATA_PROGRESS data_progress
#endif

static struct fi_info *provider_hints(const char *provider, const char *domain)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		return NULL;
	hints->caps = CAPS;
	hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = MR_MODE;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->DATA_PROGRESS = FI_PROGRESS_MANUAL;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	if (provider)
		hints->fabric_attr->prov_name = strdup(provider);
	if (domain)
		hints->domain_attr->name = strdup(domain);
	if ((provider && !hints->fabric_attr->prov_name) ||
	    (domain && !hints->domain_attr->name)) {
		fi_freeinfo(hints);
		return NULL;
	}
	return hints;
}

static int provider_getinfo(const char *provider, const char *source,
			    const char *domain, struct fi_info **list)
{
	struct fi_info *hints = provider_hints(provider, domain);
	int ret;

	*list = NULL;
	if (!hints)
		return -FI_ENOMEM;
	ret = fi_getinfo(FAB_API_VERSION, source, NULL, source ? FI_SOURCE : 0,
			 hints, list);
	fi_freeinfo(hints);
	return ret;
}

/* Empty if usable, else why not. */
static void provider_refusal(const struct fi_info *info, char *text,
			     size_t bytes)
{
	text[0] = '\0';
	if (info->domain_attr->mr_mode & ~MR_MODE)
		snprintf(text, bytes, "mr_mode asks for %s%s%s",
			 info->domain_attr->mr_mode & FI_MR_RAW ? "FI_MR_RAW " :
								  "",
			 info->domain_attr->mr_mode & FI_MR_HMEM ?
				 "FI_MR_HMEM " :
				 "",
			 info->domain_attr->mr_mode & FI_MR_COLLECTIVE ?
				 "FI_MR_COLLECTIVE" :
				 "");
	else if (info->mode & ~(FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA))
		snprintf(text, bytes, "mode asks for more than FI_CONTEXT2");
	else if (info->domain_attr->cq_data_size < IMMEDIATE_BYTES)
		snprintf(text, bytes,
			 "immediate data of %zu bytes, 4 are needed",
			 info->domain_attr->cq_data_size);
	else if (info->domain_attr->mr_key_size > sizeof(uint64_t))
		snprintf(text, bytes, "keys of %zu bytes, 8 are handled",
			 info->domain_attr->mr_key_size);
}

int fab_provider_find(const char *provider, const char *nic, const char *source,
		      struct fi_info **info, struct fab_error *error)
{
	char refusal[128] = "";
	struct fi_info *list, *at;
	int ret;

	ret = provider_getinfo(provider, source, nic, &list);
	if (ret)
		return fab_error_set(error, ret, "fi_getinfo", 0, NULL);
	for (at = list; at; at = at->next) {
		/* fi_getinfo also answers with layers over the name. */
		if (provider && strcmp(at->fabric_attr->prov_name, provider))
			continue;
		provider_refusal(at, refusal, sizeof(refusal));
		if (!refusal[0])
			break;
	}
	*info = at ? fi_dupinfo(at) : NULL;
	ret = at ? -FI_ENOMEM : -FI_ENODATA;
	fi_freeinfo(list);
	if (*info)
		return 0;
	return fab_error_set(error, ret, "fi_getinfo", 0, refusal);
}

uint32_t fab_libfabric_version(void)
{
	return fi_version();
}

/* The source address as text; "" if there is none or it is not of IP. */
static void provider_source(const struct fi_info *info, char *text,
			    size_t bytes)
{
	text[0] = '\0';
	if (info->addr_format == FI_SOCKADDR_IN && info->src_addr) {
		const struct sockaddr_in *in = info->src_addr;

		inet_ntop(AF_INET, &in->sin_addr, text, (socklen_t) bytes);
	} else if (info->addr_format == FI_SOCKADDR_IN6 && info->src_addr) {
		const struct sockaddr_in6 *in6 = info->src_addr;

		inet_ntop(AF_INET6, &in6->sin6_addr, text, (socklen_t) bytes);
	}
}

static void provider_describe(const struct fi_info *info, struct fab_info *row)
{
	memset(row, 0, sizeof(*row));
	snprintf(row->provider, sizeof(row->provider), "%s",
		 info->fabric_attr->prov_name);
	snprintf(row->domain, sizeof(row->domain), "%s",
		 info->domain_attr->name);
	snprintf(row->fabric, sizeof(row->fabric), "%s",
		 info->fabric_attr->name);
	row->caps = info->caps;
	row->mode = info->mode;
	row->max_message_bytes = info->ep_attr->max_msg_size;
	row->mr_mode = (uint64_t) (unsigned int) info->domain_attr->mr_mode;
	row->tx_size = (uint32_t) info->tx_attr->size;
	row->rx_size = (uint32_t) info->rx_attr->size;
	row->iov_limit = (uint32_t) info->tx_attr->iov_limit;
	row->rma_iov_limit = (uint32_t) info->tx_attr->rma_iov_limit;
	row->inject_bytes = (uint32_t) info->tx_attr->inject_size;
	row->immediate_bytes = (uint32_t) info->domain_attr->cq_data_size;
	row->key_bytes = (uint32_t) info->domain_attr->mr_key_size;
	provider_refusal(info, row->refusal, sizeof(row->refusal));
	row->usable = row->refusal[0] == '\0';
	provider_source(info, row->source, sizeof(row->source));
}

int fab_info_list(const char *provider, const char *source,
		  struct fab_info *rows, uint32_t capacity, uint32_t *count)
{
	struct fi_info *list, *at;
	uint32_t found = 0;
	int ret;

	ret = provider_getinfo(provider, source, NULL, &list);
	if (ret && ret != -FI_ENODATA)
		return ret;
	for (at = list; at; at = at->next, found++) {
		if (found < capacity)
			provider_describe(at, &rows[found]);
	}
	fi_freeinfo(list);
	*count = found;
	return 0;
}

static void nic_describe(const struct fi_info *info, struct fab_nic *row)
{
	const struct fid_nic *nic = info->nic;
	char refusal[128];

	memset(row, 0, sizeof(*row));
	snprintf(row->provider, sizeof(row->provider), "%s",
		 info->fabric_attr->prov_name);
	snprintf(row->domain, sizeof(row->domain), "%s",
		 info->domain_attr->name);
	snprintf(row->fabric, sizeof(row->fabric), "%s",
		 info->fabric_attr->name);
	provider_source(info, row->source, sizeof(row->source));
	provider_refusal(info, refusal, sizeof(refusal));
	row->usable = refusal[0] == '\0';
	if (nic && nic->link_attr) {
		row->bits_per_s = nic->link_attr->speed;
		row->is_down = nic->link_attr->state == FI_LINK_DOWN;
	}
	if (nic && nic->bus_attr && nic->bus_attr->bus_type == FI_BUS_PCI) {
		const struct fi_pci_attr *pci = &nic->bus_attr->attr.pci;

		row->is_pci = 1;
		row->pci_domain = pci->domain_id;
		row->pci_bus = pci->bus_id;
		row->pci_device = pci->device_id;
		row->pci_function = pci->function_id;
	}
}

int fab_nic_list(const char *provider, struct fab_nic *rows, uint32_t capacity,
		 uint32_t *count)
{
	struct fi_info *list, *at;
	uint32_t found = 0;
	int ret;

	ret = provider_getinfo(provider, NULL, NULL, &list);
	if (ret && ret != -FI_ENODATA)
		return ret;
	for (at = list; at; at = at->next) {
		/* fi_getinfo also answers with layers over the name. */
		if (strcmp(at->fabric_attr->prov_name, provider))
			continue;
		if (found < capacity)
			nic_describe(at, &rows[found]);
		found++;
	}
	fi_freeinfo(list);
	*count = found;
	return 0;
}
