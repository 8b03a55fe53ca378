// A subscriber that knows Flyball from its AsyncAPI document alone: node from_schema.mjs DOCUMENT CHANNEL BROKER
// It prints each message of a channel as "NAME KEY valid" or "NAME KEY invalid".
import { readFileSync } from "node:fs";
import Ajv from "ajv/dist/2020.js";
import { Kafka } from "kafkajs";
import { parse } from "yaml";

const [path, channelName, broker] = process.argv.slice(2);
const document = parse(readFileSync(path, "utf8"));
const follow = ({ $ref }) => $ref.slice(2).split("/").reduce((found, key) => found[key], document);

const ajv = new Ajv({ strict: false, validateFormats: false });
ajv.addSchema(document, "flyball");
const channel = document.channels[channelName];
const validators = Object.fromEntries(
  Object.values(channel.messages).map(follow).map((message) => [
    message.name,
    ajv.compile({ $ref: `flyball${message.payload.$ref}` }),
  ]),
);

const consumer = new Kafka({ clientId: "from-schema", brokers: [broker] }).consumer({ groupId: channel.address });
await consumer.connect();
await consumer.subscribe({ topic: channel.address, fromBeginning: true });
await consumer.run({
  eachMessage: async ({ message }) => {
    const name = String(message.headers.ce_type);
    const valid = validators[name]?.(JSON.parse(message.value)) ?? false;
    console.log(name, String(message.key), valid ? "valid" : "invalid");
  },
});
