import java.util.Properties;
import kafka.server.KafkaConfig;

/**
 * What Kafka's broker says of its options: each argument is "name=value;name=value"; one JSON object
 * a line says what is wrong with them, or null.
 */
public class ConfigVerdicts {
    public static void main(String[] arguments) {
        for (String argument : arguments) {
            Properties properties = new Properties();
            properties.put("process.roles", "broker,controller");
            properties.put("node.id", "1");
            properties.put("controller.quorum.bootstrap.servers", "localhost:9093");
            properties.put("controller.listener.names", "CONTROLLER");
            properties.put("listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093");
            for (String each : argument.split(";")) {
                String[] parts = each.split("=", 2);
                properties.put(parts[0], parts[1]);
            }
            String problem = "null";
            try {
                new KafkaConfig(properties);
            } catch (Exception error) {
                String message = String.valueOf(error.getMessage()).replace('\n', ' ');
                problem = "\"" + message.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
            }
            System.out.println("{\"options\": \"" + argument + "\", \"problem\": " + problem + "}");
        }
    }
}
