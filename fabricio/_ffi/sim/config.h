/* What the simulated NICs are: read from text such as
 * "nics=4,gbps=100,order=random,seed=7". */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <rdma/fabric.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NIC_LIMIT 1024u

struct sim_config {
	uint32_t nic_count;     /* nics=2 */
	uint64_t bits_per_s;    /* gbps=100 */
	uint64_t latency_ns;    /* latency_us=10, one way; paced mode only */
	uint64_t seed;          /* seed=1: of the order and of storms */
	uint32_t tx_size;       /* tx_size=4096: operations out per endpoint */
	uint32_t rx_size;       /* rx_size=8192: receives per endpoint */
	uint64_t message_bytes; /* max_bytes=1073741824: one operation */
	uint8_t random;         /* order=posted, order=random */
	uint8_t paced;          /* mode=instant, mode=paced */
	uint8_t copy;           /* copy=1; 0: RMA moves nothing */
	uint8_t consume; /* rx_cq_data=0; 1: immediate data take a receive */
	uint8_t virtual_clock; /* clock=monotonic, clock=virtual */
	uint8_t lock; /* lock=0; 1: regions keep to RLIMIT_MEMLOCK in all */
	struct fi_pci_attr *pci; /* owned, nic_count; see pci= */
	char error[192];         /* why it was refused */
};

/* Read `text` over the defaults. 0, -FI_EINVAL (error says why), -FI_ENOMEM.
 * pci=flat: one bus of the PCI domain fab a NIC; pci=p5: the buses that 32 NICs
 * of an AWS p5 host have; or addresses joined by +, "0000:4f:00.0+50:00.0". */
int sim_config_parse(struct sim_config *config, const char *text);
void sim_config_destruct(struct sim_config *config);

#endif
