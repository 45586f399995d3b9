#include "config.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAT_PCI_DOMAIN 0xfabu
#define LONGEST_VALUE   8192

/* Set `error` and return -FI_EINVAL. */
static int refuse(struct sim_config *config, const char *key, const char *value,
		  const char *why)
{
	snprintf(config->error, sizeof(config->error), "%.40s=%.60s: %s", key,
		 value, why);
	return -FI_EINVAL;
}

static int read_integer(struct sim_config *config, const char *key,
			const char *value, uint64_t least, uint64_t most,
			uint64_t *number)
{
	char why[80];
	char *end;

	errno = 0;
	*number = strtoull(value, &end, 10);
	if (!errno && value[0] >= '0' && value[0] <= '9' && !*end &&
	    *number >= least && *number <= most)
		return 0;
	snprintf(why, sizeof(why), "an integer from %llu to %llu is needed",
		 (unsigned long long) least, (unsigned long long) most);
	return refuse(config, key, value, why);
}

/* A decimal fraction in units of which one has `scale` parts. */
static int read_scaled(struct sim_config *config, const char *key,
		       const char *value, double scale, double least,
		       double most, uint64_t *number)
{
	double found;
	char why[80];
	char *end;

	found = strtod(value, &end);
	/* Written so that a NaN fails. */
	if (*value && !*end && found >= least && found <= most) {
		*number = (uint64_t) (found * scale);
		return 0;
	}
	snprintf(why, sizeof(why), "a number from %g to %g is needed", least,
		 most);
	return refuse(config, key, value, why);
}

static int read_choice(struct sim_config *config, const char *key,
		       const char *value, const char *no, const char *yes,
		       uint8_t *choice)
{
	char why[80];

	if (!strcmp(value, no) || !strcmp(value, yes)) {
		*choice = !strcmp(value, yes);
		return 0;
	}
	snprintf(why, sizeof(why), "%s or %s is needed", no, yes);
	return refuse(config, key, value, why);
}

static int read_number(struct sim_config *config, const char *key,
		       const char *value)
{
	uint64_t number = 0;
	int ret;

	if (!strcmp(key, "gbps"))
		return read_scaled(config, key, value, 1e9, 1e-3, 1e5,
				   &config->bits_per_s);
	if (!strcmp(key, "latency_us"))
		return read_scaled(config, key, value, 1e3, 0, 1e9,
				   &config->latency_ns);
	if (!strcmp(key, "seed"))
		return read_integer(config, key, value, 0, UINT64_MAX,
				    &config->seed);
	if (!strcmp(key, "max_bytes"))
		return read_integer(config, key, value, 4096, 1ull << 30,
				    &config->message_bytes);
	if (!strcmp(key, "nics")) {
		ret = read_integer(config, key, value, 1, SIM_NIC_LIMIT,
				   &number);
		config->nic_count = (uint32_t) number;
		return ret;
	}
	if (!strcmp(key, "tx_size")) {
		ret = read_integer(config, key, value, 1, 1u << 20, &number);
		config->tx_size = (uint32_t) number;
		return ret;
	}
	if (!strcmp(key, "rx_size")) {
		ret = read_integer(config, key, value, 1, 1u << 20, &number);
		config->rx_size = (uint32_t) number;
		return ret;
	}
	return refuse(config, key, value, "there is no such setting");
}

static int read_setting(struct sim_config *config, const char *key,
			const char *value)
{
	if (!strcmp(key, "order"))
		return read_choice(config, key, value, "posted", "random",
				   &config->random);
	if (!strcmp(key, "mode"))
		return read_choice(config, key, value, "instant", "paced",
				   &config->paced);
	if (!strcmp(key, "clock"))
		return read_choice(config, key, value, "monotonic", "virtual",
				   &config->virtual_clock);
	if (!strcmp(key, "copy"))
		return read_choice(config, key, value, "0", "1", &config->copy);
	if (!strcmp(key, "rx_cq_data"))
		return read_choice(config, key, value, "0", "1",
				   &config->consume);
	if (!strcmp(key, "lock"))
		return read_choice(config, key, value, "0", "1", &config->lock);
	return read_number(config, key, value);
}

/* One address, with or without the PCI domain. Returns what follows it, NULL if
 * it is none. */
static const char *pci_read(const char *text, struct fi_pci_attr *pci)
{
	unsigned int domain = 0, bus, device, function;
	int length = 0;

	if (sscanf(text, "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function,
		   &length) != 4) {
		domain = 0;
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function,
			   &length) != 3)
			return NULL;
	}
	if (device > 31 || function > 7)
		return NULL;
	pci->domain_id = (uint16_t) domain;
	pci->bus_id = (uint8_t) bus;
	pci->device_id = (uint8_t) device;
	pci->function_id = (uint8_t) function;
	return text + length;
}

static int pci_layout(struct sim_config *config, const char *layout)
{
	uint32_t count = config->nic_count;
	const char *at = layout;

	config->pci = calloc(count, sizeof(config->pci[0]));
	if (!config->pci)
		return -FI_ENOMEM;
	if (!strcmp(layout, "flat")) {
		for (uint32_t i = 0; i < count; i++) {
			config->pci[i].domain_id =
				(uint16_t) (FLAT_PCI_DOMAIN + i / 256);
			config->pci[i].bus_id = (uint8_t) i;
		}
		return 0;
	}
	if (!strcmp(layout, "p5")) {
		/* Four NICs under the switch of each of eight GPUs. */
		if (count > 32)
			return refuse(config, "pci", layout,
				      "a p5 host has 32 NICs");
		for (uint32_t i = 0; i < count; i++)
			config->pci[i].bus_id =
				(uint8_t) (79 + 17 * (i / 4) + i % 4);
		return 0;
	}
	for (uint32_t i = 0; i < count; i++) {
		at = pci_read(at, &config->pci[i]);
		if (!at || (*at != '+' && *at) ||
		    (*at == '+') != (i + 1 < count))
			return refuse(config, "pci", layout,
				      "flat, p5, or one address for each NIC, "
				      "joined by +, is needed");
		at++;
	}
	return 0;
}

int sim_config_parse(struct sim_config *config, const char *text)
{
	char layout[LONGEST_VALUE] = "flat";
	char part[LONGEST_VALUE + 64];
	int ret;

	*config = (struct sim_config) {
		.nic_count = 2,
		.bits_per_s = 100000000000ull,
		.latency_ns = 10000,
		.seed = 1,
		.tx_size = 4096,
		.rx_size = 8192,
		.message_bytes = 1ull << 30,
		.copy = 1,
	};
	while (*text) {
		size_t length = strcspn(text, ",");
		char *value;

		if (length >= sizeof(part))
			return refuse(config, "pci", "...", "it is too long");
		memcpy(part, text, length);
		part[length] = '\0';
		text += length + (text[length] == ',');
		if (!length)
			continue;
		value = strchr(part, '=');
		if (!value)
			return refuse(config, part, "", "key=value is needed");
		*value++ = '\0';
		if (!strcmp(part, "pci")) {
			if (strlen(value) >= sizeof(layout))
				return refuse(config, part, "...",
					      "it is too long");
			strcpy(layout, value);
			continue;
		}
		ret = read_setting(config, part, value);
		if (ret)
			return ret;
	}
	ret = pci_layout(config, layout);
	if (ret)
		sim_config_destruct(config);
	return ret;
}

void sim_config_destruct(struct sim_config *config)
{
	free(config->pci);
	config->pci = NULL;
}
