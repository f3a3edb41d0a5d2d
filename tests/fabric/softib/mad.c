// SPDX-License-Identifier: GPL-2.0
/*
 * MADs for a port.  The performance management agent serves the counters in
 * sysfs (ports/1/counters) and perfquery.  Subnet management packets are passed
 * to smp.c.
 */
#include <linux/limits.h>
#include <rdma/ib_pma.h>

#include "softib.h"

static u32 saturated(u64 value)
{
	return min_t(u64, value, U32_MAX);
}

static u16 saturated16(u64 value)
{
	return min_t(u64, value, U16_MAX);
}

static void get_class_port_info(struct ib_class_port_info *info)
{
	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = 1;
	info->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH;
	ib_set_cpi_resp_time(info, SOFTIB_LIFETIME);
}

/* The unit of PortXmitData and PortRcvData is four octets (IBA 16.1.3.5). */
static void get_counters(struct softib_hca *hca, struct ib_pma_portcounters *c)
{
	c->port_select = 1;
	c->port_rcv_errors = cpu_to_be16(saturated16(hca->ibport.n_pkt_drops));
	c->port_xmit_data =
		cpu_to_be32(saturated(atomic64_read(&hca->sent.octets) / 4));
	c->port_rcv_data =
		cpu_to_be32(saturated(atomic64_read(&hca->received.octets) / 4));
	c->port_xmit_packets =
		cpu_to_be32(saturated(atomic64_read(&hca->sent.packets)));
	c->port_rcv_packets =
		cpu_to_be32(saturated(atomic64_read(&hca->received.packets)));
}

static void get_counters_ext(struct softib_hca *hca,
			     struct ib_pma_portcounters_ext *c)
{
	u64 sent = atomic64_read(&hca->sent.packets);
	u64 received = atomic64_read(&hca->received.packets);

	c->port_select = 1;
	c->port_xmit_data = cpu_to_be64(atomic64_read(&hca->sent.octets) / 4);
	c->port_rcv_data = cpu_to_be64(atomic64_read(&hca->received.octets) / 4);
	c->port_xmit_packets = cpu_to_be64(sent);
	c->port_rcv_packets = cpu_to_be64(received);
	c->port_unicast_xmit_packets = cpu_to_be64(sent);
	c->port_unicast_rcv_packets = cpu_to_be64(received);
}

static int answer_perf(struct softib_hca *hca, const struct ib_mad *in,
		       struct ib_mad *out)
{
	struct ib_pma_mad *reply = (struct ib_pma_mad *)out;

	memset(out, 0, sizeof(*out));
	out->mad_hdr = in->mad_hdr;
	out->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	if (in->mad_hdr.method != IB_MGMT_METHOD_GET) {
		out->mad_hdr.status =
			cpu_to_be16(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD);
		return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
	}
	switch (in->mad_hdr.attr_id) {
	case IB_PMA_CLASS_PORT_INFO:
		get_class_port_info((void *)reply->data);
		break;
	case IB_PMA_PORT_COUNTERS:
		get_counters(hca, (void *)reply->data);
		break;
	case IB_PMA_PORT_COUNTERS_EXT:
		get_counters_ext(hca, (void *)reply->data);
		break;
	default:
		out->mad_hdr.status =
			cpu_to_be16(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB);
	}
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}

/*
 * The process_mad operation of struct ib_device_ops.
 *
 * Return: IB_MAD_RESULT_SUCCESS, with IB_MAD_RESULT_REPLY if @out is set.
 */
int softib_process_mad(struct ib_device *ibdev, int flags, softib_port_t port,
		       const struct ib_wc *in_wc, const struct ib_grh *in_grh,
		       const struct ib_mad *in, struct ib_mad *out,
		       size_t *out_len, u16 *pkey_index)
{
	struct softib_hca *hca = to_softib(ibdev);

	if (in->mad_hdr.method != IB_MGMT_METHOD_GET &&
	    in->mad_hdr.method != IB_MGMT_METHOD_SET)
		return IB_MAD_RESULT_SUCCESS;
	switch (in->mad_hdr.mgmt_class) {
	case IB_MGMT_CLASS_PERF_MGMT:
		return answer_perf(hca, in, out);
	case IB_MGMT_CLASS_SUBN_LID_ROUTED:
	case IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE:
		*out = *in;
		softib_smp_answer(hca, (struct ib_smp *)out);
		return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
	default:
		return IB_MAD_RESULT_SUCCESS;
	}
}
