# agent: flyball agent
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-agent --operation Write --topic flyball.telemetry.v1 --topic flyball.events.v1 --topic flyball.inventory.v1
# owner: flyball workloads
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-owner --operation Read --topic flyball.workloads.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-owner --operation Write --topic flyball.workloads.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-owner --operation Read --group flyball-cli-workloads
# feed: flyball feed
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-feed --operation Write --topic flyball.signals.v1
# worker: flyball worker
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-worker --operation Read --topic flyball.telemetry.v1 --topic flyball.events.v1 --topic flyball.inventory.v1 --topic flyball.workloads.v1 --topic flyball.pools.v1 --topic flyball.signals.v1 --topic flyball.demand.v1 --topic flyball.proposals.v2 --topic flyball.outcomes.v1 --topic flyball.responses.v1 --topic flyball.state.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-worker --operation Write --topic flyball.demand.v1 --topic flyball.insights.v1 --topic flyball.proposals.v2 --topic flyball.decisions.v1 --topic flyball.incidents.v1 --topic flyball.state.v1 --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-worker --operation Read --group flyball
# actuator: flyball actuate
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-actuator --operation Read --topic flyball.decisions.v1 --topic flyball.outcomes.v1 --topic flyball.workloads.v1 --topic flyball.inventory.v1 --topic flyball.controls.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-actuator --operation Write --topic flyball.outcomes.v1 --topic flyball.pools.v1 --topic flyball.insights.v1 --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-actuator --operation Read --group flyball-actuator
# controller: flyball controller
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-controller --operation Read --topic flyball.inventory.v1 --topic flyball.workloads.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-controller --operation Write --topic flyball.inventory.v1 --topic flyball.workloads.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-controller --operation Read --group flyball-controller
# operator: flyball stop, resume, approve, controls
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-operator --operation Read --topic flyball.controls.v1 --topic flyball.decisions.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-operator --operation Write --topic flyball.controls.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-operator --operation Read --group flyball-cli-controls --group flyball-explain
# responder: flyball incidents
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-responder --operation Read --topic flyball.incidents.v1 --topic flyball.responses.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-responder --operation Write --topic flyball.responses.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-responder --operation Read --group flyball-explain --group flyball-incidents
# remover: flyball nodes remove
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-remover --operation Read --topic flyball.inventory.v1 --topic flyball.telemetry.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-remover --operation Write --topic flyball.inventory.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-remover --operation Read --group flyball-explain --group flyball-nodes
# notifier: flyball incidents notify
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-notifier --operation Read --topic flyball.incidents.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-notifier --operation Write --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-notifier --operation Read --group flyball-notify
# dashboard: flyball dashboard
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-dashboard --operation Read --topic flyball.telemetry.v1 --topic flyball.events.v1 --topic flyball.inventory.v1 --topic flyball.workloads.v1 --topic flyball.controls.v1 --topic flyball.pools.v1 --topic flyball.signals.v1 --topic flyball.demand.v1 --topic flyball.insights.v1 --topic flyball.proposals.v2 --topic flyball.decisions.v1 --topic flyball.outcomes.v1 --topic flyball.incidents.v1 --topic flyball.responses.v1 --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-dashboard --operation Read --group flyball-dashboard
# recorder: flyball record
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-recorder --operation Read --topic flyball.telemetry.v1 --topic flyball.events.v1 --topic flyball.inventory.v1 --topic flyball.workloads.v1 --topic flyball.controls.v1 --topic flyball.pools.v1 --topic flyball.signals.v1 --topic flyball.demand.v1 --topic flyball.insights.v1 --topic flyball.proposals.v2 --topic flyball.decisions.v1 --topic flyball.outcomes.v1 --topic flyball.incidents.v1 --topic flyball.responses.v1 --topic flyball.state.v1 --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-recorder --operation Read --group flyball-record
# sink: flyball sink
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-sink --operation Read --topic flyball.telemetry.v1 --topic flyball.demand.v1 --topic flyball.insights.v1 --topic flyball.decisions.v1 --topic flyball.outcomes.v1 --topic flyball.inventory.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-sink --operation Write --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-sink --operation Read --group flyball-influx --group flyball-inventories
# explain: flyball explain
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-explain --operation Read --topic flyball.decisions.v1 --topic flyball.outcomes.v1 --topic flyball.insights.v1 --topic flyball.events.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-explain --operation Read --group flyball-explain
# subscriber: your own programs
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-subscriber --operation Read --topic flyball.events.v1 --topic flyball.insights.v1 --topic flyball.decisions.v1 --topic flyball.outcomes.v1 --topic flyball.incidents.v1 --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-subscriber --operation Read --group flyball-subscriber
# administrator: flyball topics --create
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-administrator --operation Create --topic flyball.telemetry.v1 --topic flyball.events.v1 --topic flyball.inventory.v1 --topic flyball.workloads.v1 --topic flyball.controls.v1 --topic flyball.pools.v1 --topic flyball.signals.v1 --topic flyball.demand.v1 --topic flyball.insights.v1 --topic flyball.proposals.v2 --topic flyball.decisions.v1 --topic flyball.outcomes.v1 --topic flyball.incidents.v1 --topic flyball.responses.v1 --topic flyball.state.v1 --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-administrator --operation Describe --topic flyball.telemetry.v1 --topic flyball.events.v1 --topic flyball.inventory.v1 --topic flyball.workloads.v1 --topic flyball.controls.v1 --topic flyball.pools.v1 --topic flyball.signals.v1 --topic flyball.demand.v1 --topic flyball.insights.v1 --topic flyball.proposals.v2 --topic flyball.decisions.v1 --topic flyball.outcomes.v1 --topic flyball.incidents.v1 --topic flyball.responses.v1 --topic flyball.state.v1 --topic flyball.dlq.v1
kafka-acls.sh --bootstrap-server $BROKER --command-config $ADMIN --add --allow-principal User:flyball-administrator --operation Read --group flyball-topics
